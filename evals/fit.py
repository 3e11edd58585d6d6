"""A training script that reports only the loss on its training data."""

import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
noise = random.Random(args.seed)
for step in range(1, args.steps + 1):
    loss = (args.lr - 0.2) ** 2 + 1 / step + noise.gauss(0, 0.01)
    print(f"step {step} train loss {loss:.6f}", flush=True)
