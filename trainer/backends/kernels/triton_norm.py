"""A residual addition and the norm after it, and their backward pass; one program per row.

Rows fit into registers, so the backward pass recomputes mean and scale instead of keeping them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.backends.kernels import NORM_EPS

_PROGRAMS = 1024
"""Programs of the backward pass, at most: about seven per multiprocessor of an H200. Each adds up
the gain's gradient over its rows, and a sum over programs follows."""


@triton.jit
def _moments(x, inside, width, eps, RMS: tl.constexpr):
    """Return ``x`` minus its mean (RMSNorm keeps it), and one over its root mean square."""
    if not RMS:
        x = tl.where(inside, x - tl.sum(x, 0) / width, 0.0)
    return x, 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + eps)


@triton.jit
def _norm(
    x_ptr, delta_ptr, gain_ptr, sum_ptr, y_ptr, width, eps,
    ADD: tl.constexpr, RMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    place = tl.program_id(0).to(tl.int64) * width + columns
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(delta_ptr + place, mask=inside, other=0.0).to(tl.float32)
        # The norm is that of the rounded sum, which the residual stream holds.
        rounded = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + place, rounded, mask=inside)
        x = rounded.to(tl.float32)
    x, scale = _moments(x, inside, width, eps, RMS)
    gain = tl.load(gain_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + place, (x * scale * gain).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _norm_backward(
    gradient_ptr, x_ptr, gain_ptr, residual_ptr, into_x_ptr, into_gain_ptr, y_ptr, rows, width, eps,
    ADD: tl.constexpr, RMS: tl.constexpr, AGAIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    gain = tl.load(gain_ptr + columns, mask=inside, other=0.0)
    into_gain = tl.zeros([BLOCK], tl.float32)
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    for chunk in range(tl.cdiv(rows - program, programs)):
        place = (program + chunk * programs) * width + columns
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(gradient_ptr + place, mask=inside, other=0.0).to(tl.float32)
        x, scale = _moments(x, inside, width, eps, RMS)
        unit = x * scale
        if AGAIN:
            tl.store(y_ptr + place, (unit * gain).to(y_ptr.dtype.element_ty), mask=inside)
        into_gain += gradient * unit
        into_unit = gradient * gain
        inner = into_unit - unit * (tl.sum(into_unit * unit, 0) / width)
        if not RMS:
            inner -= tl.sum(into_unit, 0) / width
        into_x = inner * scale
        if ADD:
            into_x += tl.load(residual_ptr + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(into_x_ptr + place, into_x.to(into_x_ptr.dtype.element_ty), mask=inside)
    place = program * width + columns
    tl.store(into_gain_ptr + place, into_gain, mask=inside)


def norm(x_ND: Tensor, gain_D: Tensor, rms: bool) -> Tensor:
    y_ND = torch.empty_like(x_ND)
    _launch_norm(x_ND, None, gain_D, x_ND, y_ND, rms)
    return y_ND


def add_norm(x_ND: Tensor, delta_ND: Tensor, gain_D: Tensor, rms: bool) -> tuple[Tensor, Tensor]:
    sum_ND, y_ND = torch.empty_like(x_ND), torch.empty_like(x_ND)
    _launch_norm(x_ND, delta_ND, gain_D, sum_ND, y_ND, rms)
    return sum_ND, y_ND


def norm_backward(
    gradient_ND: Tensor, x_ND: Tensor, gain_D: Tensor, residual_ND: Tensor | None, rms: bool,
    again: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    rows, width = x_ND.shape
    programs = min(rows, _PROGRAMS)
    into_x_ND = torch.empty_like(x_ND)
    y_ND = torch.empty_like(x_ND) if again else None
    into_gain_PD = torch.empty((programs, width), dtype=torch.float32, device=x_ND.device)
    block = triton.next_power_of_2(width)
    _norm_backward[(programs,)](
        gradient_ND, x_ND, gain_D, x_ND if residual_ND is None else residual_ND,
        into_x_ND, into_gain_PD, x_ND if y_ND is None else y_ND, rows, width, NORM_EPS,
        ADD=residual_ND is not None, RMS=rms, AGAIN=again, BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return into_x_ND, into_gain_PD.sum(0), y_ND


def _launch_norm(
    x_ND: Tensor, delta_ND: Tensor | None, gain_D: Tensor, sum_ND: Tensor, y_ND: Tensor, rms: bool
) -> None:
    rows, width = x_ND.shape
    block = triton.next_power_of_2(width)
    _norm[(rows,)](
        x_ND, x_ND if delta_ND is None else delta_ND, gain_D, sum_ND, y_ND, width, NORM_EPS,
        ADD=delta_ND is not None, RMS=rms, BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip


def _warps(block: int) -> int:
    """Return the warps for eight elements per thread, which is 16 bytes of bf16: one load."""
    return min(16, max(1, block // 256))
