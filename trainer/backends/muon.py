"""Muon: momentum made orthogonal, for the matrices of the blocks (Jordan et al. 2024).

A matrix moves by the nearest semi-orthogonal matrix to its momentum, times 0.2 × sqrt(its longer
side) × its learning rate. So an update has the usual size of AdamW's, whose learning rate carries
over (Liu et al. 2025, arXiv 2502.16982). The projections of queries, keys and values are three
matrices; a gated activation's two branches are one, as in Megatron-Core.

Matrices of one shape are made orthogonal in one batch. Shapes: K matrices of M × N, with M <= N.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer.backends.products import cpu_multiplies_bf16

MOMENTUM = 0.95
RMS = 0.2
"""Root mean square of an update's entries at a learning rate of 1, as AdamW's usually have."""
POLAR_EXPRESS = (
    (7.989363214222508, -22.747832123744796, 16.678598023544325),
    (3.6434181477950878, -2.726865274698734, 0.5371078953570542),
    (2.6712664799600763, -1.9853154429743889, 0.4535225171407156),
    (1.9588931234180296, -1.3403574223940047, 0.3841442199832845),
)
"""Coefficients of the best four steps for singular values from 0.01 to 1 (algorithm 1 of Amsel et
al. 2025, arXiv 2505.16932). For random matrices they come as near to the nearest orthogonal matrix
as Jordan's five steps (cosine 0.991, his 0.981)."""
SAFETY = 1.01
"""Divides singular values before each step, since rounding may push one above 1."""


class Piece(NamedTuple):
    """Rows of a parameter that are one matrix for Muon."""

    parameter: nn.Parameter
    first_row: int
    rows: int

    def of(self, whole: Tensor) -> Tensor:
        """Return these rows of the parameter, or of its gradient, with the shorter side first."""
        part = whole.narrow(0, self.first_row, self.rows)
        return part.t() if part.shape[0] > part.shape[1] else part


class Muon:
    """The optimizer rule of the blocks' matrices; see :class:`trainer.backends.optimizer.Rule`."""

    def __init__(self, pieces: Iterable[Piece], *, lr_ratio: float, weight_decay: float) -> None:
        """:param lr_ratio: Muon's learning rate as a multiple of the other parameters'."""
        self._lr_ratio, self._weight_decay = lr_ratio, weight_decay
        by_shape: dict[torch.Size, list[Piece]] = {}
        for piece in pieces:
            by_shape.setdefault(piece.of(piece.parameter).shape, []).append(piece)
        self._batches = [
            (same, torch.zeros(len(same), *shape, device=same[0].parameter.device))
            for shape, same in by_shape.items()
        ]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that it updates."""
        return list(dict.fromkeys(piece.parameter for same, _ in self._batches for piece in same))

    @torch.no_grad()
    def step(self, scale: Tensor, stopped: Tensor, lr: float, step: int) -> None:
        """Update the parameters and clear their gradients; do nothing where ``stopped`` is 1."""
        lr *= self._lr_ratio
        for same, momentum_KMN in self._batches:
            gradients = [piece.of(gradient_of(piece.parameter)) for piece in same]
            gradient_KMN = torch.stack(gradients) / scale
            momentum_KMN.lerp_(gradient_KMN, 1.0 - MOMENTUM)
            gradient_KMN.lerp_(momentum_KMN, MOMENTUM)
            moved_KMN = orthogonal(gradient_KMN, in_bf16=multiplies_bf16(gradient_KMN.device))
            moved_KMN *= lr * RMS * max(moved_KMN.shape[1:]) ** 0.5
            moved_KMN.masked_fill_(stopped > 0, 0.0)
            # Not a multiplication of the matrix itself, which must not change where stopped is 1.
            kept = 1.0 - lr * self._weight_decay * (1.0 - stopped)
            matrices = [piece.of(piece.parameter) for piece in same]
            torch._foreach_mul_(matrices, kept)
            torch._foreach_sub_(matrices, moved_KMN.unbind())
        for parameter in self.parameters:
            parameter.grad = None


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """Return a parameter's gradient."""
    assert parameter.grad is not None
    return parameter.grad


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether the device has products of bf16."""
    return device.type == "cuda" or cpu_multiplies_bf16()


def orthogonal(x_KMN: Tensor, *, in_bf16: bool) -> Tensor:
    """Return semi-orthogonal matrices near each of ``x_KMN``, in fp32.

    A step multiplies every singular value s by a + b s² + c s⁴. In fp32 the polynomials of wide
    matrices are multiplied with each other first, all M × M, and with the matrices at the end; bf16
    is not exact enough for that.
    """
    x = x_KMN / (x_KMN.norm(dim=(1, 2), keepdim=True) * SAFETY + 1e-7)
    x = x.bfloat16() if in_bf16 else x
    if not in_bf16 and x.shape[2] >= 2 * x.shape[1]:
        gram = torch.bmm(x, x.mT)
        whole = factor = _polynomial(gram, *POLAR_EXPRESS[0])
        for coefficients in POLAR_EXPRESS[1:]:
            gram = torch.bmm(torch.bmm(factor, gram), factor) / SAFETY**2
            factor = _polynomial(gram, *coefficients)
            whole = torch.bmm(factor, whole) / SAFETY
        x = torch.bmm(whole, x)
    else:
        for number, coefficients in enumerate(POLAR_EXPRESS):
            x = x / SAFETY if number else x
            x = torch.bmm(_polynomial(torch.bmm(x, x.mT), *coefficients), x)
    orthogonal_KMN: Tensor = x.float()
    return orthogonal_KMN


def _polynomial(gram_KMM: Tensor, a: float, b: float, c: float) -> Tensor:
    """Return ``a + b gram + c gram²``."""
    polynomial = torch.baddbmm(gram_KMM, gram_KMM, gram_KMM, beta=b, alpha=c)
    polynomial.diagonal(dim1=1, dim2=2).add_(a)
    return polynomial
