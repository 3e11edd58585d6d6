"""AdamW's update of one parameter and of its bf16 copy, which products read, in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from trainer.backends.kernels import ADAM_EPS

_BLOCK = 1024


@triton.jit
def _adamw(
    parameter_ptr, gradient_ptr, first_ptr, second_ptr, copy_ptr, grad_scale_ptr, stopped_ptr,
    size, rate, decay, beta1, beta2, root_correction2, eps,
    COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if tl.load(stopped_ptr) == 0.0:
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = place < size
        gradient = tl.load(gradient_ptr + place, mask=mask, other=0.0) / tl.load(grad_scale_ptr)
        first = tl.load(first_ptr + place, mask=mask, other=0.0)
        second = tl.load(second_ptr + place, mask=mask, other=0.0)
        first = gradient + beta1 * (first - gradient)
        second = beta2 * second + (1.0 - beta2) * gradient * gradient
        spread = tl.sqrt(second) / root_correction2 + eps
        parameter = tl.load(parameter_ptr + place, mask=mask, other=0.0)
        parameter = parameter * decay - rate * first / spread
        tl.store(parameter_ptr + place, parameter, mask=mask)
        tl.store(first_ptr + place, first, mask=mask)
        tl.store(second_ptr + place, second, mask=mask)
        if COPY:
            tl.store(copy_ptr + place, parameter.to(copy_ptr.dtype.element_ty), mask=mask)


def adamw_(
    parameter: Tensor,
    gradient: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    copy: Tensor | None,
    grad_scale: Tensor,
    stopped: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    eps: float = ADAM_EPS,
) -> None:
    size = parameter.numel()
    _adamw[(triton.cdiv(size, _BLOCK),)](
        parameter, gradient, first_moment, second_moment,
        parameter if copy is None else copy, grad_scale, stopped, size,
        lr / (1 - betas[0] ** step), 1 - lr * weight_decay, betas[0], betas[1],
        (1 - betas[1] ** step) ** 0.5, eps,
        COPY=copy is not None, BLOCK=_BLOCK,
    )  # fmt: skip
