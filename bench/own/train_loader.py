"""Train an MLP from a DataLoader with workers, as ``bench.gpu`` measures it."""

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset[tuple[Tensor, Tensor]]):
    """Points of a smooth function, made by the workers; on their device if it is not a CPU."""

    def __init__(self, count: int, device: str) -> None:
        self.count, self.device = count, device

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(64, generator=generator)
        y = x.to(self.device).sin().sum().cpu().reshape(1)
        return x, y


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--examples", type=int, default=8192)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--start_method", default="fork")
    parser.add_argument("--worker_device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Points(args.examples, args.worker_device),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.num_workers,
        pin_memory=args.device != "cpu",
        multiprocessing_context=args.start_method,
    )
    model: nn.Module = nn.Sequential(
        nn.Linear(64, args.hidden), nn.GELU(), nn.Linear(args.hidden, 1)
    ).to(args.device)
    step = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for iteration, pair in enumerate(loader):
        x, y = (part.to(args.device, non_blocking=True) for part in pair)
        loss = nn.functional.mse_loss(step(x), y)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if iteration % 10 == 0:
            print(f"iter {iteration}: loss {loss.item():.4f}")
    print(f"val loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
