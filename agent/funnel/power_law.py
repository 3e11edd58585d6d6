"""A loss that falls as ``E + A t^-alpha``, fitted to a training curve.

The form is that of Hestness et al. 2017 (arXiv 1712.00409) and Hoffmann et al. 2022 (arXiv
2203.15556), taken along one run. For a given alpha the other two are a linear least-squares
problem (variable projection, Golub and Pereyra 1973), solved for every alpha of a fine grid at
once; E and A are kept from going below zero.

Shapes: R replicates, K exponents, N points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXPONENTS_K: Array = np.geomspace(0.02, 2.0, 200)
"""Neighbours are 2.3 % apart."""


@dataclass(frozen=True, slots=True)
class PowerLaws:
    """R laws in one unit of ``t``."""

    floors: Array
    """E: the loss after endless training."""
    amplitudes: Array
    """A: what is above it at ``t = scale``."""
    exponents: Array
    scale: float

    def at(self, t_N: Array) -> Array:
        """``loss_RN``."""
        ratio_N = np.asarray(t_N, dtype=np.float64) / self.scale
        fallen_RN = ratio_N[None, :] ** -self.exponents[:, None]
        loss_RN: Array = self.floors[:, None] + self.amplitudes[:, None] * fallen_RN
        return loss_RN


def fit_power_laws(t_N: Array, loss_RN: Array, weight_N: Array) -> PowerLaws:
    """The weighted least-squares law of every row.

    :param t_N: above zero, three points or more.
    :param weight_N: inverse variances, up to a factor.
    """
    scale = float(np.exp(np.average(np.log(t_N), weights=weight_N)))
    w_N = weight_N / weight_N.sum()
    x_KN = (t_N / scale)[None, :] ** -EXPONENTS_K[:, None]
    mean_x_K = x_KN @ w_N
    mean_y_R = loss_RN @ w_N
    var_x_K = (x_KN**2) @ w_N - mean_x_K**2
    cov_RK = (loss_RN * w_N) @ x_KN.T - mean_y_R[:, None] * mean_x_K[None, :]
    amplitude_RK = np.maximum(cov_RK / var_x_K, 0.0)
    floor_RK = mean_y_R[:, None] - amplitude_RK * mean_x_K
    below_RK = floor_RK < 0
    through_zero_RK = ((loss_RN * w_N) @ x_KN.T) / ((x_KN**2) @ w_N)
    amplitude_RK = np.where(below_RK, through_zero_RK, amplitude_RK)
    floor_RK = np.where(below_RK, 0.0, floor_RK)
    best_R = _weighted_squares(loss_RN, x_KN, w_N, floor_RK, amplitude_RK).argmin(axis=1)
    row_R = np.arange(len(loss_RN))
    return PowerLaws(
        floors=floor_RK[row_R, best_R],
        amplitudes=amplitude_RK[row_R, best_R],
        exponents=EXPONENTS_K[best_R],
        scale=scale,
    )


def _weighted_squares(
    loss_RN: Array, x_KN: Array, w_N: Array, floor_RK: Array, amplitude_RK: Array
) -> Array:
    squares_RK = np.empty_like(floor_RK)
    for row, loss_N in enumerate(loss_RN):
        fitted_KN = floor_RK[row][:, None] + amplitude_RK[row][:, None] * x_KN
        squares_RK[row] = ((loss_N - fitted_KN) ** 2) @ w_N
    return squares_RK
