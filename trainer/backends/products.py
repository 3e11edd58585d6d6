"""Matrix products of the plain blocks, on any CPU.

On a CPU without bf16 products in oneDNN (x86 before AVX-512), torch falls back to a loop that takes
ten times as long as the fp32 product. There this module widens the operands, multiplies in fp32 and
rounds the product to bf16. bf16 instructions round the same sums, except for the order of addition.
The tensors kept for the backward pass are bf16 either way.

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_CPU_MULTIPLIES_BF16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""Read on import, since a compiler cannot trace this call."""


def cpu_multiplies_bf16() -> bool:
    """Return whether oneDNN has bf16 products for this CPU."""
    return _CPU_MULTIPLIES_BF16


def is_widened(x: Tensor) -> bool:
    """Return whether products of this tensor are taken in fp32 and rounded.

    Compiled products are not, since the compiler handles them.
    """
    if torch.compiler.is_compiling():
        return False
    in_bf16_on_cpu = x.dtype is torch.bfloat16 and x.device.type == "cpu"
    return in_bf16_on_cpu and not cpu_multiplies_bf16()


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return ``left`` times ``right``, two matrices, in their dtype, written to ``out`` if given.

    It is not differentiable.
    """
    if not is_widened(left):
        return torch.mm(left, right, out=out)
    widened = torch.mm(left.float(), right.float())
    return widened.to(left.dtype) if out is None else out.copy_(widened)


def linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """Return ``x_NI`` times the transpose of ``weight_OI``, in the dtype of ``x``."""
    weight_OI = weight_OI.to(x_NI.dtype)
    if is_widened(x_NI):
        y_NO: Tensor = _WidenedLinear.apply(x_NI, weight_OI)  # type: ignore[no-untyped-call]
        return y_NO
    return functional.linear(x_NI, weight_OI)


class _WidenedLinear(torch.autograd.Function):
    """A product in fp32 that is rounded to bf16, differentiable once."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return product(x_NI, weight_OI.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor]:
        x_NI, weight_OI = ctx.saved_tensors
        return product(gradient_NO, weight_OI), product(gradient_NO.t(), x_NI)
