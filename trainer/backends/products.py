"""Matrix products of the plain blocks, on any CPU, and the sizes that fp8 products take.

On a CPU without bf16 products in oneDNN (x86 before AVX-512), torch falls back to a loop that takes
ten times as long as the fp32 product. There :func:`linear` widens the operands, multiplies in fp32
and rounds the product to bf16. bf16 instructions round the same sums, except for the order of
addition. The tensors kept for the backward pass are bf16 either way.

Products in fp8 are TransformerEngine's, in the Megatron-Core backend. Our own kernels for them lost
against bf16 on each device seen (0.77 to 0.93 of its tokens/s) and were removed.

Shapes: N tokens, I inputs, O outputs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from autoresearch.errors import SpecError
from trainer.schema import Config

_CPU_MULTIPLIES_BF16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def cpu_multiplies_bf16() -> bool:
    """Return whether oneDNN has bf16 products for this CPU."""
    return _CPU_MULTIPLIES_BF16


def linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """Return ``x_NI`` times the transpose of ``weight_OI``, in the dtype of ``x``."""
    weight_OI = weight_OI.to(x_NI.dtype)
    in_bf16_on_cpu = x_NI.dtype is torch.bfloat16 and x_NI.device.type == "cpu"
    if in_bf16_on_cpu and not cpu_multiplies_bf16():
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
