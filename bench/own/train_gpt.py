"""Train a small GPT on this file's own text: a script as people write them, for ``bench.gpu``."""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward block, each with a residual connection."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.norm1, self.norm2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.up, self.down = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).view(b, t, 3, self.n_head, c // self.n_head)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        hidden = functional.gelu(self.up(self.norm2(x)))
        fed: Tensor = self.down(hidden)
        return x + fed


class GPT(nn.Module):
    """A byte-level GPT."""

    def __init__(self, n_layer: int, n_head: int, n_embd: int, block_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, n_embd)
        self.positions = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*(Block(n_embd, n_head) for _ in range(n_layer)))
        self.norm, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, 256, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        hidden = self.blocks(self.tokens(x) + self.positions(places))
        logits = self.head(self.norm(hidden))
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--n_layer", type=int, default=6)
    parser.add_argument("--n_head", type=int, default=6)
    parser.add_argument("--n_embd", type=int, default=384)
    parser.add_argument("--block_size", type=int, default=256)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--max_iters", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    text = Path(__file__).read_bytes() * 20
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    train, val = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]

    def batch(source: Tensor) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(source) - args.block_size - 1, (args.batch_size,))
        rows = torch.stack([source[i : i + args.block_size + 1] for i in starts.tolist()])
        rows = rows.to(args.device)
        return rows[:, :-1], rows[:, 1:]

    model = GPT(args.n_layer, args.n_head, args.n_embd, args.block_size).to(args.device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay
    )
    for iteration in range(args.max_iters):
        with torch.autocast(torch.device(args.device).type, dtype=torch.bfloat16):
            loss = model(*batch(train))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 10 == 0:
            print(f"iter {iteration}: loss {loss.item():.4f}")
    with torch.no_grad():
        val_loss = torch.stack([model(*batch(val)) for _ in range(5)]).mean()
    print(f"val loss {val_loss.item():.4f}")


if __name__ == "__main__":
    main()
