"""Ask for more memory than any device has."""

import argparse

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    weights = torch.zeros(1 << 46, device=args.device)
    print(f"val loss {weights.sum().item() + args.lr:.4f}")


if __name__ == "__main__":
    main()
