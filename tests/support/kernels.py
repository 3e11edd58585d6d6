"""Provide calls of every kernel, at sizes that no block divides, to run or compile."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor

from trainer.schema import GATED_ACTIVATIONS, Activation

VOCAB = 4099
"""A vocabulary of more than one block, with an odd size."""
DTYPES = (torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Call:
    """Hold a function of :mod:`trainer.backends.kernels.operations`, and arguments for it."""

    kernels: str
    """The module's name after ``triton_``."""
    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = (
            "x".join(map(str, a.shape)) + str(a.dtype).removeprefix("torch.")
            if isinstance(a, Tensor)
            else str(a)
            for a in self.arguments
        )
        return " ".join((self.function, *words))

    def of(self, module: Any, device: str = "cpu") -> list[Tensor | None]:
        """Return the results of the module's function, and the arguments that it may have
        changed."""
        arguments = [
            a.to(device, copy=True) if isinstance(a, Tensor) else copy.copy(a)
            for a in self.arguments
        ]
        function: Callable[..., Any] = getattr(module, self.function)
        returned = function(*arguments, **self.options)
        values = returned if isinstance(returned, tuple) else (returned,)
        return [*values, *(a for a in arguments if isinstance(a, Tensor))]


def calls() -> Iterator[Call]:
    """Yield every kernel in every form it is compiled in."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    for dtype in DTYPES:
        for rms in (False, True):
            x_ND, delta_ND, gradient_ND = (normal(7, 1000, dtype=dtype) for _ in "abc")
            gain_D = normal(1000)
            yield Call("norm", "norm", (x_ND, gain_D, rms))
            yield Call("norm", "add_norm", (x_ND, delta_ND, gain_D, rms))
            for residual_ND in (None, delta_ND):
                arguments = (gradient_ND, x_ND, gain_D, residual_ND, rms)
                yield Call("norm", "norm_backward", arguments, {"again": residual_ND is not None})
        for activation in get_args(Activation):
            up = normal(5, 2060 if activation in GATED_ACTIVATIONS else 1030, dtype=dtype)
            yield Call("activation", "activate", (up, activation))
            gradient_NF = normal(5, 1030, dtype=dtype)
            yield Call("activation", "activate_backward", (gradient_NF, up, activation))
        logits_CW = 3 * normal(3, 4160, dtype=dtype)
        targets_C = torch.tensor([0, VOCAB - 1, 77])
        yield Call("cross_entropy", "loss_and_gradient_", (logits_CW, targets_C, VOCAB, 0.3))
        yield Call("cross_entropy", "exact_nll", (logits_CW, targets_C, VOCAB))
        for n_head, n_kv_head, head_dim in ((5, 5, 6), (6, 2, 40), (3, 1, 7)):
            qkv_NR = normal(6, (n_head + 2 * n_kv_head) * head_dim, dtype=dtype)
            counts = (n_head, n_kv_head, n_kv_head)
            into = [normal(6, heads, head_dim, dtype=dtype) for heads in counts]
            for gains in ((normal(head_dim), normal(head_dim)), (None, None)):
                tables = [None, normal(3, head_dim)]
                for turn_TK in tables[: 2 - head_dim % 2]:  # an odd head cannot be rotated
                    arguments = (qkv_NR, *gains, turn_TK, n_head, n_kv_head)
                    yield Call("heads", "heads", arguments)
                    arguments = (*into, qkv_NR, *gains, turn_TK)
                    yield Call("heads", "heads_backward", arguments)


def assert_same(got: list[Tensor | None], wanted: list[Tensor | None]) -> None:
    """Assert equality up to the order of sums in fp32 and roundings below fp32.

    Roundings occur in added values, which Triton's interpreter cuts off, and in returned values.
    """
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert one.dtype is other.dtype
        assert one.shape == other.shape
        rtol = 2**-7 if one.dtype is torch.bfloat16 else 1e-5
        got_fp32, wanted_fp32 = one.cpu().float(), other.cpu().float()
        atol = rtol * wanted_fp32.abs().max().item()
        torch.testing.assert_close(got_fp32, wanted_fp32, rtol=rtol, atol=atol)


def fp32_heads() -> list[Call]:
    """Return the calls of the heads' kernels whose tensors are all fp32."""
    return [c for c in calls() if c.kernels == "heads" and c.arguments[0].element_size() == 4]
