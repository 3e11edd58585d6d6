"""GELU (the exact one, by erf) and SwiGLU; backward they make their output again."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
_ROOT_HALF = tl.constexpr(0.7071067811865476)
_ROOT_TAU = tl.constexpr(0.3989422804014327)
"""1 / sqrt(2 π), of the normal density."""


@triton.jit
def _places(hidden, GATED: tl.constexpr, BLOCK: tl.constexpr):
    """Where this program's part of a row lies: in the output, and in the input."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    stride = 2 * hidden if GATED else hidden
    return row * hidden + columns, row * stride + columns, columns < hidden


@triton.jit
def _activate(up_ptr, y_ptr, hidden, GATED: tl.constexpr, BLOCK: tl.constexpr):
    out, place, inside = _places(hidden, GATED, BLOCK)
    x = tl.load(up_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        linear = tl.load(up_ptr + place + hidden, mask=inside, other=0.0).to(tl.float32)
        y = x * tl.sigmoid(x) * linear
    else:
        y = 0.5 * x * (1.0 + tl.erf(x * _ROOT_HALF))
    tl.store(y_ptr + out, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _activate_backward(
    gradient_ptr, up_ptr, into_up_ptr, y_ptr, hidden, GATED: tl.constexpr, BLOCK: tl.constexpr
):
    out, place, inside = _places(hidden, GATED, BLOCK)
    gradient = tl.load(gradient_ptr + out, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(up_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        linear = tl.load(up_ptr + place + hidden, mask=inside, other=0.0).to(tl.float32)
        sigmoid = tl.sigmoid(x)
        silu = x * sigmoid
        y = silu * linear
        into_x = gradient * linear * (sigmoid + silu * (1.0 - sigmoid))
        into_linear = (gradient * silu).to(into_up_ptr.dtype.element_ty)
        tl.store(into_up_ptr + place + hidden, into_linear, mask=inside)
    else:
        below = 0.5 * (1.0 + tl.erf(x * _ROOT_HALF))
        y = x * below
        into_x = gradient * (below + x * tl.exp(-0.5 * x * x) * _ROOT_TAU)
    tl.store(into_up_ptr + place, into_x.to(into_up_ptr.dtype.element_ty), mask=inside)
    tl.store(y_ptr + out, y.to(y_ptr.dtype.element_ty), mask=inside)


def activate(up: Tensor, gated: bool) -> Tensor:
    rows, columns = up.shape
    hidden = columns // 2 if gated else columns
    y_NF = up.new_empty(rows, hidden)
    _activate[_grid(y_NF)](up, y_NF, hidden, GATED=gated, BLOCK=_BLOCK)
    return y_NF


def activate_backward(gradient_NF: Tensor, up: Tensor, gated: bool) -> tuple[Tensor, Tensor]:
    into_up, y_NF = torch.empty_like(up), torch.empty_like(gradient_NF)
    hidden = y_NF.shape[1]
    _activate_backward[_grid(y_NF)](
        gradient_NF, up, into_up, y_NF, hidden, GATED=gated, BLOCK=_BLOCK
    )
    return into_up, y_NF


def _grid(y_NF: Tensor) -> tuple[int, int]:
    return y_NF.shape[0], triton.cdiv(y_NF.shape[1], _BLOCK)
