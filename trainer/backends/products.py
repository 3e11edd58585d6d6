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
from trainer.backends.kernels import FLOAT8_SMALLEST
from trainer.spec import Config

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


CAPABILITY = (8, 9)
"""The first compute capability with fp8 matrix products: Ada, Hopper, Blackwell."""
MULTIPLE = 16
"""Every dimension of an fp8 matrix product is a multiple of this: cuBLASLt needs 16-byte rows."""

_FORWARD = torch.float8_e4m3fn
_BACKWARD = torch.float8_e5m2


def check_shapes(config: Config) -> None:
    """Check that kernels support the fp8 products of the config's sizes.

    That includes the heads of keys and values, and the tokens of a step, over which a weight's
    gradient sums.

    :raises SpecError: if one does not fit; it names the size.
    """
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


def check_capability(capability: tuple[int, int]) -> None:
    """:raises SpecError: if a GPU of this compute capability has no fp8 products."""
    if capability < CAPABILITY:
        raise SpecError(
            f"precision fp8 needs compute capability {CAPABILITY[0]}.{CAPABILITY[1]} or"
            f" newer and this GPU has {capability[0]}.{capability[1]}; choose bf16"
        )


def float8_linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """Return ``x_NI`` times the transpose of ``weight_OI``, both in fp8, in the dtype of ``x``."""
    y_NO: Tensor = _Float8Linear.apply(x_NI, weight_OI)  # type: ignore[no-untyped-call]
    return y_NO


class _Float8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:
        x8_NI, x_scale = _quantise(x_NI, _FORWARD)
        weight8_OI, weight_scale = _quantise(weight_OI, _FORWARD)
        ctx.save_for_backward(x8_NI, x_scale, weight8_OI, weight_scale)
        return torch._scaled_mm(
            x8_NI,
            weight8_OI.t(),
            scale_a=x_scale,
            scale_b=weight_scale,
            out_dtype=x_NI.dtype,
            # Partial sums have fewer bits, which suffices in the forward pass (torchao and
            # TransformerEngine do the same) but not for gradients.
            use_fast_accum=True,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor]:
        x8_NI, x_scale, weight8_OI, weight_scale = ctx.saved_tensors
        gradient8_NO, gradient_scale = _quantise(gradient_NO.contiguous(), _BACKWARD)
        gradient_NI = torch._scaled_mm(
            gradient8_NO,
            _by_columns(weight8_OI),
            scale_a=gradient_scale,
            scale_b=weight_scale,
            out_dtype=gradient_NO.dtype,
        )
        gradient_OI = torch._scaled_mm(
            gradient8_NO.t().contiguous(),
            _by_columns(x8_NI),
            scale_a=gradient_scale,
            scale_b=x_scale,
            out_dtype=torch.float32,
        )
        return gradient_NI, gradient_OI


def _quantise(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return ``x`` as fp8 numbers, and the fp32 scale to multiply them by."""
    largest = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=FLOAT8_SMALLEST) / largest
    return (x.float() / scale).clamp(-largest, largest).to(dtype), scale


def _by_columns(x8: Tensor) -> Tensor:
    """Return the same matrix in column-major layout, as products need their second operand."""
    return x8.t().contiguous().t()
