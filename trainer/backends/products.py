"""Matrix products of the plain blocks, whatever instructions the CPU has.

On a CPU that oneDNN has no bf16 products for (x86 before AVX-512), torch falls back to a loop that
takes ten times as long as the product in fp32 does. There operands are widened, multiplied in fp32,
and the product is rounded to bf16: what bf16 instructions round are the same sums, but for the
order of adding up. What is kept for the backward pass is bf16 either way.

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_CPU_MULTIPLIES_BF16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""Found where a compiler does not look on: it can trace no such question."""


def cpu_multiplies_bf16() -> bool:
    """Whether oneDNN has products of bf16 for this CPU."""
    return _CPU_MULTIPLIES_BF16


def is_widened(x: Tensor) -> bool:
    """Whether products of this tensor are taken in fp32 and rounded. Those that are compiled are
    the compiler's own affair."""
    if torch.compiler.is_compiling():
        return False
    in_bf16_on_cpu = x.dtype is torch.bfloat16 and x.device.type == "cpu"
    return in_bf16_on_cpu and not cpu_multiplies_bf16()


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """``left`` times ``right``, two matrices, in their dtype, into ``out`` where there is one.
    Nothing is differentiated through it."""
    if not is_widened(left):
        return torch.mm(left, right, out=out)
    widened = torch.mm(left.float(), right.float())
    return widened.to(left.dtype) if out is None else out.copy_(widened)


def linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """``x_NI`` times the transpose of ``weight_OI``, in the dtype of ``x``."""
    weight_OI = weight_OI.to(x_NI.dtype)
    if is_widened(x_NI):
        y_NO: Tensor = _WidenedLinear.apply(x_NI, weight_OI)  # type: ignore[no-untyped-call]
        return y_NO
    return functional.linear(x_NI, weight_OI)


class _WidenedLinear(torch.autograd.Function):
    """Differentiable once."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return product(x_NI, weight_OI.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor]:
        x_NI, weight_OI = ctx.saved_tensors
        return product(gradient_NO, weight_OI), product(gradient_NO.t(), x_NI)
