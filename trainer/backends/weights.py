"""Parameters as matrix products read them: in bf16 or fp8, made once a step.

A parameter is fp32 and changes once a step; products of a step, and all passes of an evaluation,
read one copy of it. A copy knows the version of the parameter it was made of (torch counts changes
in place) and is made anew when that is another, whoever changed it. The optimizer's kernel writes
the bf16 copy along with the parameter and says so (:meth:`Weight.written`), which saves even that.

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.backends.kernels import operations

_FORWARD = torch.float8_e4m3fn
_BACKWARD = torch.float8_e5m2


class Weight(Protocol):
    """The matrix ``[O, I]`` of a product, and the product's three forms."""

    parameter: nn.Parameter

    def product(self, x_NI: Tensor) -> Tensor:
        """``x`` times the matrix's transpose, ``[N, O]``."""
        ...

    def incoming(self, gradient_NO: Tensor) -> Any:
        """The gradient of the product, as the two that follow want it."""
        ...

    def into_input(self, incoming: Any) -> Tensor:
        """The gradient of ``x``, ``[N, I]``."""
        ...

    def into_weight(self, incoming: Any, x_NI: Tensor) -> Tensor:
        """The gradient of the parameter, fp32."""
        ...


class RoundedWeight:
    """A copy in the dtype of the products, bf16 or fp32, with rows of zeros behind it where its
    products' rows are to be aligned."""

    def __init__(
        self, parameter: nn.Parameter, dtype: torch.dtype, rows: int | None = None
    ) -> None:
        """:param rows: of the copy, at least the parameter's; None: as many."""
        self.parameter = parameter
        self._dtype = dtype
        self._rows = parameter.shape[0] if rows is None else rows
        self._copy: Tensor | None = None
        self._version = -1

    @property
    def copy(self) -> Tensor:
        """``[rows, I]``, current."""
        copy = self.storage
        if copy is None:
            return self.parameter.detach()
        if self._version != self.parameter._version:
            with torch.inference_mode(False), torch.no_grad():
                copy[: self.parameter.shape[0]].copy_(self.parameter)
            self.written()
        return copy

    @property
    def storage(self) -> Tensor | None:
        """The copy's memory, whatever it holds; None where the parameter itself is read."""
        rows, inputs = self.parameter.shape
        if self.parameter.dtype is self._dtype and rows == self._rows:
            return None
        if self._copy is None:
            # An evaluation may be the first to ask; training could not use what is made in one.
            with torch.inference_mode(False):
                make = torch.zeros if self._rows > rows else torch.empty
                self._copy = make(
                    (self._rows, inputs), dtype=self._dtype, device=self.parameter.device
                )
        return self._copy

    def written(self) -> None:
        """The copy holds what the parameter does."""
        self._version = self.parameter._version

    def forget(self) -> None:
        """Make the copy anew when it is next read."""
        self._version = -1

    def product(self, x_NI: Tensor) -> Tensor:
        """See :class:`Weight`."""
        return torch.mm(x_NI, self.copy.t())

    def incoming(self, gradient_NO: Tensor) -> Tensor:
        """See :class:`Weight`."""
        return gradient_NO

    def into_input(self, incoming: Tensor) -> Tensor:
        """See :class:`Weight`."""
        return torch.mm(incoming, self.copy)

    def into_weight(self, incoming: Tensor, x_NI: Tensor) -> Tensor:
        """See :class:`Weight`."""
        return product_fp32(incoming.t(), x_NI)


class Float8Weight:
    """A copy in fp8, by rows and by columns; inputs and gradients are quantised as they come.

    E4M3, gradients E5M2, each tensor scaled as a whole by its own largest magnitude
    (:mod:`trainer.backends.float8`). Inputs are quantised a second time in the backward pass, by
    columns, since what they are made of is kept and they are not.
    """

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter
        self._version = -1
        self._copy: tuple[Tensor, Tensor, Tensor] | None = None

    def _current(self) -> tuple[Tensor, Tensor, Tensor]:
        """By rows, by columns, and their scale."""
        if self._copy is None or self._version != self.parameter._version:
            with torch.inference_mode(False), torch.no_grad():
                rows, columns, scale = operations.quantise(
                    self.parameter.detach(), _FORWARD, True, True
                )
            assert rows is not None and columns is not None
            self._copy, self._version = (rows, columns, scale), self.parameter._version
        return self._copy

    def product(self, x_NI: Tensor) -> Tensor:
        """See :class:`Weight`."""
        weight8_OI, _, weight_scale = self._current()
        x8_NI, _, x_scale = operations.quantise(x_NI, _FORWARD, True, False)
        return _scaled(x8_NI, weight8_OI.t(), x_scale, weight_scale, x_NI.dtype, fast=True)

    def incoming(self, gradient_NO: Tensor) -> tuple[Tensor, Tensor, Tensor, torch.dtype]:
        """See :class:`Weight`."""
        rows, columns, scale = operations.quantise(gradient_NO, _BACKWARD, True, True)
        assert rows is not None and columns is not None
        return rows, columns, scale, gradient_NO.dtype

    def into_input(self, incoming: tuple[Tensor, Tensor, Tensor, torch.dtype]) -> Tensor:
        """See :class:`Weight`."""
        gradient8_NO, _, scale, dtype = incoming
        _, weight8_IO, weight_scale = self._current()
        return _scaled(gradient8_NO, weight8_IO.t(), scale, weight_scale, dtype)

    def into_weight(
        self, incoming: tuple[Tensor, Tensor, Tensor, torch.dtype], x_NI: Tensor
    ) -> Tensor:
        """See :class:`Weight`."""
        _, gradient8_ON, scale, _ = incoming
        _, x8_IN, x_scale = operations.quantise(x_NI, _FORWARD, False, True)
        assert x8_IN is not None
        return _scaled(gradient8_ON, x8_IN.t(), scale, x_scale, torch.float32)


def product_fp32(left: Tensor, right: Tensor) -> Tensor:
    """``left`` times ``right``, its sums fp32 and not rounded to the dtype of the two.

    torch has that product for CUDA alone.
    """
    if left.dtype is torch.float32:
        return torch.mm(left, right)
    if left.device.type == "cpu":
        return torch.mm(left.float(), right.float())
    return torch.mm(left, right, out_dtype=torch.float32)


def add_product_fp32_(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left`` times ``right`` to ``total``, which is fp32, inside of the product."""
    if left.dtype is torch.float32:
        total.addmm_(left, right)
    elif left.device.type == "cpu":
        total.addmm_(left.float(), right.float())
    else:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)


def _scaled(
    left: Tensor | None,
    right: Tensor,
    left_scale: Tensor,
    right_scale: Tensor,
    dtype: torch.dtype,
    *,
    fast: bool = False,
) -> Tensor:
    """:param fast: partial sums in fewer bits: good enough forward, as torchao and
    TransformerEngine have it, and not for gradients."""
    assert left is not None
    return torch._scaled_mm(
        left, right, scale_a=left_scale, scale_b=right_scale, out_dtype=dtype, use_fast_accum=fast
    )
