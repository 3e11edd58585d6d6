"""Copies of parameters for matrix products, in bf16, made once a step.

A parameter is fp32 and changes once a step. The products of a step, and all passes of an
evaluation, read one copy of it. A copy records the version of its parameter (torch counts in-place
changes) and is remade when that changes. The optimizer writes all of them together.

Shapes: N tokens, I inputs, O outputs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


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
                write_copies([self])
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

    def product(self, x_NI: Tensor) -> Tensor:
        """Return ``x`` times the matrix's transpose, ``[N, O]``."""
        return torch.mm(x_NI, self.copy.t())

    def into_input(self, gradient_NO: Tensor) -> Tensor:
        """Return the gradient of ``x``, ``[N, I]``."""
        return torch.mm(gradient_NO, self.copy)

    def into_weight(self, gradient_NO: Tensor, x_NI: Tensor) -> Tensor:
        """Return the gradient of the parameter, fp32."""
        return product_fp32(gradient_NO.t(), x_NI)


def write_copies(weights: Sequence[RoundedWeight]) -> None:
    """Make copies, which must exist, equal to their parameters, in as few launches as torch can."""
    if not weights:
        return
    parameters = [weight.parameter.detach() for weight in weights]
    copies = [weight.storage for weight in weights]
    rows = [c[: len(p)] for c, p in zip(copies, parameters, strict=True) if c is not None]
    torch._foreach_copy_(rows, parameters)
    for weight in weights:
        weight._version = weight.parameter._version


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
