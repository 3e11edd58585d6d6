"""Count the launches and bytes of a step on a GPU, without one: ``python -m bench.gpu_bytes``.

A step runs on the meta device. Every operator that is no view counts as a launch, which reads its
tensors and writes its results once; our own kernels count by their arguments and results. Matrix
products and attention are counted apart, since a compiled model has the same ones.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from bench.gpu_table import shape_of
from trainer.backends import blocks
from trainer.backends.kernels import operations
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend
from trainer.schema import Config

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "attention")
VIEWS = ("view", "t", "transpose", "split", "slice", "select", "unsqueeze", "squeeze", "expand",
         "detach", "alias", "unbind", "permute", "as_strided", "empty", "new_empty", "empty_like",
         "_unsafe_view", "empty_strided", "diagonal", "split_with_sizes", "_reshape_alias",
         "new_empty_strided", "lift_fresh", "is_same_size", "unfold")  # fmt: skip
"""Operators that move nothing."""


class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Launches and bytes of the operators in its block, by kind."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.inside = False
        """Whether one of our kernels runs, which may call another in torch's operators."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            self.add(name, (args, kwargs), result)
        return result

    def add(self, name: str, given: Any, result: Any) -> None:
        """Count a launch that reads and writes these."""
        is_product = name.startswith(PRODUCTS)
        kind = "products" if is_product else "between"
        written = tree_leaves(result)
        read = [one for one in tree_leaves(given) if isinstance(one, Tensor)]
        self.launches[kind] += 1
        self.launches[name] += 1
        size = sum(_bytes(one) for one in (*read, *written) if isinstance(one, Tensor))
        self.bytes[kind] += size
        self.bytes[name] += size


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class Attention(torch.autograd.Function):
    """Attention that is counted as one kernel each way, and computes nothing."""

    @staticmethod
    def forward(ctx: Any, count: "Count", *qkv: Tensor) -> Tensor:
        y_BHTK = torch.empty_like(qkv[0])
        count.add("attention", qkv, y_BHTK)
        ctx.save_for_backward(*qkv, y_BHTK)
        ctx.count = count
        return y_BHTK

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *qkv, y_BHTK = ctx.saved_tensors
        found = [torch.empty_like(x) for x in qkv]
        ctx.count.add("attention", (*qkv, y_BHTK, gradient), found)
        return None, *found


def count_step(config: Config, vocab_size: int) -> Count:
    """Count a step of the torch backend on our kernels, without its embedding's sort."""
    device = torch.device("meta")
    model = TorchBackend(kernels=True).build(config, vocab_size, device).train()
    optimizer = optimizer_of(model, config)
    tokens_BT = torch.zeros(config.batch_size, config.seq_len, dtype=torch.int64, device=device)
    count = Count()
    kernels = {name: getattr(operations, name) for name in KERNELS if hasattr(operations, name)}
    attend = blocks.attend
    try:
        blocks.attend = lambda *qkv: Attention.apply(  # type: ignore[no-untyped-call]
            count, *qkv
        )
        for name, function in kernels.items():
            setattr(operations, name, _counted(count, name, function))
        with count:
            for step in range(2):
                if step == 1:  # the first one also makes the copies of matrices
                    count.launches.clear()
                    count.bytes.clear()
                loss = model(tokens_BT, tokens_BT)
                loss.backward()
                optimizer.step(loss, 0.01)
    finally:
        blocks.attend = attend
        for name, function in kernels.items():
            setattr(operations, name, function)
    return count


KERNELS = ("norm", "add_norm", "norm_backward", "heads", "heads_backward", "activate",
           "activate_backward", "loss_and_gradient_", "adamw_")  # fmt: skip


def _counted(count: Count, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        inside, count.inside = count.inside, True
        with _disable_current_modes():
            result = function(*args, **kwargs)
        count.inside = inside
        written = (*args[:5],) if name == "adamw_" else result
        if not inside:
            count.add(name, args, (args[0], result) if name == "loss_and_gradient_" else written)
        return result

    return run


def main() -> None:
    """Print the counts of the modern shape."""
    config, vocab_size = shape_of("modern, 50 M", small=False)
    count = count_step(config, vocab_size)
    for kind in ("between", "products"):
        print(f"{kind}: {count.launches[kind]} launches, {count.bytes[kind] / 1e9:.2f} GB")
    print("by operator, GB:")
    for name, size in count.bytes.most_common():
        if name in count.launches and size > 1e6 and name not in ("between", "products"):
            print(f"  {name:28} {count.launches[name]:5} {size / 1e9:8.3f}")


if __name__ == "__main__":
    main()
