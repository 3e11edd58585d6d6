"""Copies of parameters for matrix products: in bf16 or fp8, made once a step.

A parameter is fp32 and changes once a step. The products of a step, and all passes of an
evaluation, read one copy of it. A copy records the version of its parameter (torch counts in-place
changes) and is remade when that changes. The optimizer's kernel writes the bf16 copy along with the
parameter and calls :meth:`RoundedWeight.written`, so that no copy must be remade.

Shapes: N tokens, I inputs, O outputs.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from trainer.backends.kernels import operations

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
"""The dtypes of numbers and of gradients in fp8."""


class RoundedWeight:
    """A copy in the products' dtype, bf16 or fp32.

    It ends with rows of zeros if the rows of its products must be aligned.
    """

    def __init__(
        self, parameter: nn.Parameter, dtype: torch.dtype, rows: int | None = None
    ) -> None:
        """:param rows: rows of the copy, at least the parameter's; None: as many as it has."""
        self.parameter = parameter
        self._dtype = dtype
        self._rows = parameter.shape[0] if rows is None else rows
        self._copy: Tensor | None = None
        self._version = -1

    @property
    def copy(self) -> Tensor:
        """Return the up-to-date copy, ``[rows, I]``."""
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
        """Return the copy's memory, current or not; None if products read the parameter itself."""
        rows, inputs = self.parameter.shape
        if self.parameter.dtype is self._dtype and rows == self._rows:
            return None
        if self._copy is None:
            # An evaluation may be the first caller; training cannot use inference-mode tensors.
            with torch.inference_mode(False):
                make = torch.zeros if self._rows > rows else torch.empty
                self._copy = make(
                    (self._rows, inputs), dtype=self._dtype, device=self.parameter.device
                )
        return self._copy

    def written(self) -> None:
        """Mark the copy as equal to the parameter."""
        self._version = self.parameter._version

    def product(self, x_NI: Tensor) -> Tensor:
        """Return ``x`` times the matrix's transpose, ``[N, O]``."""
        return torch.mm(x_NI, self.copy.t())

    def incoming(self, gradient_NO: Tensor) -> Any:
        """Convert the product's gradient for :meth:`into_input` and :meth:`into_weight`."""
        return gradient_NO

    def into_input(self, incoming: Any) -> Tensor:
        """Return the gradient of ``x``, ``[N, I]``."""
        return torch.mm(incoming, self.copy)

    def into_weight(self, incoming: Any, x_NI: Tensor) -> Tensor:
        """Return the gradient of the parameter, fp32."""
        return product_fp32(incoming.t(), x_NI)


class Float8Weight:
    """A copy in fp8, by rows and by columns; inputs and gradients are quantized on each use.

    Numbers are E4M3, gradients E5M2; each tensor is scaled as a whole by its own largest magnitude
    (:mod:`trainer.backends.products`). Inputs are quantized a second time in the backward pass, by
    columns, since they are recomputed there and not kept.
    """

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter
        self._version = -1
        self._copy: tuple[Tensor, Tensor, Tensor] | None = None

    def _current(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the up-to-date copy by rows and by columns, and their scale."""
        if self._copy is None or self._version != self.parameter._version:
            with torch.inference_mode(False), torch.no_grad():
                rows, columns, scale = operations.quantise(
                    self.parameter.detach(), FORWARD, True, True
                )
            assert rows is not None and columns is not None
            self._copy, self._version = (rows, columns, scale), self.parameter._version
        return self._copy

    def product(self, x_NI: Tensor) -> Tensor:
        """See :class:`RoundedWeight`."""
        weight8_OI, _, weight_scale = self._current()
        x8_NI, _, x_scale = operations.quantise(x_NI, FORWARD, True, False)
        return scaled(x8_NI, weight8_OI.t(), x_scale, weight_scale, x_NI.dtype, fast=True)

    def incoming(self, gradient_NO: Tensor) -> Any:
        """See :class:`RoundedWeight`."""
        return *operations.quantise(gradient_NO, BACKWARD, True, True), gradient_NO.dtype

    def into_input(self, incoming: Any) -> Tensor:
        """See :class:`RoundedWeight`."""
        gradient8_NO, _, scale, dtype = incoming
        _, weight8_IO, weight_scale = self._current()
        return scaled(gradient8_NO, weight8_IO.t(), scale, weight_scale, dtype)

    def into_weight(self, incoming: Any, x_NI: Tensor) -> Tensor:
        """See :class:`RoundedWeight`."""
        _, gradient8_ON, scale, _ = incoming
        _, x8_IN, x_scale = operations.quantise(x_NI, FORWARD, False, True)
        assert x8_IN is not None
        return scaled(gradient8_ON, x8_IN.t(), scale, x_scale, torch.float32)


Weight: TypeAlias = RoundedWeight | Float8Weight
"""The matrix ``[O, I]`` of a product, and the product's three forms."""


def product_fp32(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left`` times ``right`` in fp32, not rounded to their dtype.

    torch has that product only for CUDA.
    """
    if left.dtype is torch.float32:
        return torch.mm(left, right)
    if left.device.type == "cpu":
        return torch.mm(left.float(), right.float())
    return torch.mm(left, right, out_dtype=torch.float32)


def add_product_fp32_(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left`` times ``right`` to ``total``, which is fp32, within the product itself."""
    if left.dtype is torch.float32:
        total.addmm_(left, right)
    elif left.device.type == "cpu":
        total.addmm_(left.float(), right.float())
    else:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)


def scaled(
    left: Tensor | None,
    right: Tensor,
    left_scale: Tensor,
    right_scale: Tensor,
    dtype: torch.dtype,
    *,
    fast: bool = False,
) -> Tensor:
    """:param fast: use fewer bits for partial sums, which suffices in the forward pass (torchao and
    TransformerEngine do the same) but not for gradients."""
    assert left is not None
    return torch._scaled_mm(
        left, right, scale_a=left_scale, scale_b=right_scale, out_dtype=dtype, use_fast_accum=fast
    )
