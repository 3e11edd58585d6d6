"""A small stand-in for a training script: its loss depends on lr, l2 and, a little, on the seed."""

import argparse
import math
import random

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--l2", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
noise = random.Random(args.seed)
for step in range(1, args.steps + 1):
    best = 0.5 + 0.05 * math.log10(args.lr / 0.5) ** 2 + 0.1 * args.l2
    loss = best + math.exp(-step / 4) + noise.gauss(0, 0.002)
    print(f"step {step} val loss {loss:.4f}", flush=True)
