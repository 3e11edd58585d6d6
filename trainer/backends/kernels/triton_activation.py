"""GELU (exact, by erf), the square of ReLU, and SwiGLU and GEGLU.

The last two gate a second branch with SiLU and GELU. The backward pass recomputes the outputs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.schema import GATED_ACTIVATIONS, Activation

_BLOCK = 1024
_ROOT_HALF = tl.constexpr(0.7071067811865476)
_ROOT_TAU = tl.constexpr(0.3989422804014327)
"""1 / sqrt(2 π), a factor of the normal density."""
_SILU = tl.constexpr(0)
_GELU = tl.constexpr(1)
_RELU2 = tl.constexpr(2)
_FORMS = {"swiglu": _SILU, "geglu": _GELU, "gelu": _GELU, "relu2": _RELU2}
"""The functions of the input, or of its half that gates."""


@triton.jit
def _places(hidden, GATED: tl.constexpr, BLOCK: tl.constexpr):
    """Return the offsets of this program's part of a row, in the output and in the input."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    stride = 2 * hidden if GATED else hidden
    return row * hidden + columns, row * stride + columns, columns < hidden


@triton.jit
def _formed(x, FORM: tl.constexpr):
    """Return the function and its derivative."""
    if FORM == _SILU:
        sigmoid = tl.sigmoid(x)
        y = x * sigmoid
        slope = sigmoid + y * (1.0 - sigmoid)
    elif FORM == _GELU:
        below = 0.5 * (1.0 + tl.erf(x * _ROOT_HALF))
        y = x * below
        slope = below + x * tl.exp(-0.5 * x * x) * _ROOT_TAU
    else:
        positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        y = positive * positive
        slope = 2.0 * positive
    return y, slope


@triton.jit
def _activate(up_ptr, y_ptr, hidden, GATED: tl.constexpr, FORM: tl.constexpr, BLOCK: tl.constexpr):
    out, place, inside = _places(hidden, GATED, BLOCK)
    x = tl.load(up_ptr + place, mask=inside, other=0.0).to(tl.float32)
    y, _ = _formed(x, FORM)
    if GATED:
        y = y * tl.load(up_ptr + place + hidden, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + out, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _activate_backward(
    gradient_ptr, up_ptr, into_up_ptr, y_ptr, hidden,
    GATED: tl.constexpr, FORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    out, place, inside = _places(hidden, GATED, BLOCK)
    gradient = tl.load(gradient_ptr + out, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(up_ptr + place, mask=inside, other=0.0).to(tl.float32)
    y, slope = _formed(x, FORM)
    if GATED:
        linear = tl.load(up_ptr + place + hidden, mask=inside, other=0.0).to(tl.float32)
        into_linear = (gradient * y).to(into_up_ptr.dtype.element_ty)
        tl.store(into_up_ptr + place + hidden, into_linear, mask=inside)
        gradient = gradient * linear
        y = y * linear
    into_x = (gradient * slope).to(into_up_ptr.dtype.element_ty)
    tl.store(into_up_ptr + place, into_x, mask=inside)
    tl.store(y_ptr + out, y.to(y_ptr.dtype.element_ty), mask=inside)


def activate(up: Tensor, activation: Activation) -> Tensor:
    rows, columns = up.shape
    gated = activation in GATED_ACTIVATIONS
    hidden = columns // 2 if gated else columns
    y_NF = up.new_empty(rows, hidden)
    form = _FORMS[activation].value
    _activate[_grid(y_NF)](up, y_NF, hidden, GATED=gated, FORM=form, BLOCK=_BLOCK)
    return y_NF


def activate_backward(
    gradient_NF: Tensor, up: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    into_up, y_NF = torch.empty_like(up), torch.empty_like(gradient_NF)
    gated, form = activation in GATED_ACTIVATIONS, _FORMS[activation].value
    _activate_backward[_grid(y_NF)](
        gradient_NF, up, into_up, y_NF, y_NF.shape[1], GATED=gated, FORM=form, BLOCK=_BLOCK
    )
    return into_up, y_NF


def _grid(y_NF: Tensor) -> tuple[int, int]:
    return y_NF.shape[0], triton.cdiv(y_NF.shape[1], _BLOCK)
