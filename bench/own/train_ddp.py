"""Train an MLP in the processes of torchrun, which agree over a loopback socket."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    dist.init_process_group("gloo")  # NCCL refuses two processes on one GPU
    torch.manual_seed(args.seed)
    layers = nn.Sequential(nn.Linear(64, args.hidden), nn.GELU(), nn.Linear(args.hidden, 1))
    model = DistributedDataParallel(layers.to(args.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + dist.get_rank())
    for _ in range(args.steps):
        x = torch.randn(128, 64, device=args.device)
        loss = nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"val loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
