"""Matrix products of the plain blocks: on any CPU, and in fp8 with torch alone.

On a CPU without bf16 products in oneDNN (x86 before AVX-512), torch falls back to a loop that takes
ten times as long as the fp32 product. There :func:`linear` widens the operands, multiplies in fp32
and rounds the product to bf16. bf16 instructions round the same sums, except for the order of
addition. The tensors kept for the backward pass are bf16 either way.

The torch backend's blocks use :func:`float8_linear` at precision fp8. Inputs and weights are E4M3,
gradients E5M2 (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"). Each tensor is scaled as
a whole by its own largest magnitude when it is used (dynamic, tensor-wise scaling), so no first
step lacks a history. Sums and the optimizer's weights are fp32; results are bf16. The head,
attention, norms and the residual stream are the same as in bf16.

torchao's ``convert_to_float8_training`` has this as its default recipe. It is not used, because it
works on ``nn.Linear`` modules and each of its releases is built for one torch. Both call torch's
``_scaled_mm`` for the product. Scaling and casting take many passes over every operand as written
here, which :mod:`trainer.backends.compilation` fuses. On CUDA without compilation,
:class:`trainer.backends.weights.Float8Weight` replaces this with kernels of two passes. On an
H100 neither is faster than bf16 at the 354 M shape (0.93 and 0.77 of its tokens/s).

Shapes: N tokens, I inputs, O outputs; in fp8 all multiples of :data:`MULTIPLE` except N in
evaluation.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from autoresearch.errors import SpecError
from trainer.backends.kernels.operations import in_fp8
from trainer.backends.weights import BACKWARD, FORWARD, scaled
from trainer.spec import Config

_CPU_MULTIPLIES_BF16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""Read on import, since a compiler cannot trace this call."""


def cpu_multiplies_bf16() -> bool:
    """Return whether oneDNN has bf16 products for this CPU."""
    return _CPU_MULTIPLIES_BF16


def linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """Return ``x_NI`` times the transpose of ``weight_OI``, in the dtype of ``x``."""
    weight_OI = weight_OI.to(x_NI.dtype)
    in_bf16_on_cpu = x_NI.dtype is torch.bfloat16 and x_NI.device.type == "cpu"
    # A compiler handles bf16 by itself.
    if in_bf16_on_cpu and not torch.compiler.is_compiling() and not cpu_multiplies_bf16():
        y_NO: Tensor = _WidenedLinear.apply(x_NI, weight_OI)  # type: ignore[no-untyped-call]
        return y_NO
    return functional.linear(x_NI, weight_OI)


class _WidenedLinear(torch.autograd.Function):
    """A product in fp32 that is rounded to bf16, differentiable once."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return torch.mm(x_NI.float(), weight_OI.t().float()).to(x_NI.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, ...]:
        x_NI, weight_OI = (saved.float() for saved in ctx.saved_tensors)
        wide_NO = gradient_NO.float()
        into = (torch.mm(wide_NO, weight_OI), torch.mm(wide_NO.t(), x_NI))
        return tuple(gradient.to(gradient_NO.dtype) for gradient in into)


CAPABILITY = (8, 9)
"""The first compute capability with fp8 matrix products: Ada, Hopper, Blackwell."""
MULTIPLE = 16
"""Every dimension of an fp8 matrix product is a multiple of this: cuBLASLt needs 16-byte rows."""


def check_fp8(config: Config, capability: tuple[int, int]) -> None:
    """Check that a GPU of this compute capability has fp8 products of the config's sizes.

    That includes the heads of keys and values, and the tokens of a step, over which a weight's
    gradient sums.

    :raises SpecError: if it has not, or a size does not fit; it names the size.
    """
    if capability < CAPABILITY:
        raise SpecError(
            f"precision fp8 needs compute capability {CAPABILITY[0]}.{CAPABILITY[1]} or"
            f" newer and this GPU has {capability[0]}.{capability[1]}; choose bf16"
        )
    head_dim = config.d_model // config.n_head
    sizes = {
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "n_kv_head × head_dim": config.kv_heads * head_dim,
        "seq_len": config.seq_len,
    }
    for name, size in sizes.items():
        if size % MULTIPLE:
            raise SpecError(
                f"precision fp8 needs sizes that are multiples of {MULTIPLE}, and {name} is"
                f" {size}; change it or choose bf16"
            )


def float8_linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """Return ``x_NI`` times the transpose of ``weight_OI``, both in fp8, in the dtype of ``x``."""
    y_NO: Tensor = _Float8Linear.apply(x_NI, weight_OI)  # type: ignore[no-untyped-call]
    return y_NO


class _Float8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        x8_NI, x_scale = in_fp8(x_NI, FORWARD)
        weight8_OI, weight_scale = in_fp8(weight_OI, FORWARD)
        ctx.save_for_backward(x8_NI, x_scale, weight8_OI, weight_scale)
        return scaled(x8_NI, weight8_OI.t(), x_scale, weight_scale, x_NI.dtype, fast=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor]:
        x8_NI, x_scale, weight8_OI, weight_scale = ctx.saved_tensors
        gradient8_NO, scale = in_fp8(gradient_NO.contiguous(), BACKWARD)
        # Products need their second operand in column-major layout.
        weight8_OI, x8_NI = (x8.t().contiguous().t() for x8 in (weight8_OI, x8_NI))
        gradient_NI = scaled(gradient8_NO, weight8_OI, scale, weight_scale, gradient_NO.dtype)
        gradient8_ON = gradient8_NO.t().contiguous()
        return gradient_NI, scaled(gradient8_ON, x8_NI, scale, x_scale, torch.float32)
