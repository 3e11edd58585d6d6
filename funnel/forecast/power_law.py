"""Fit a loss that falls as ``E + A t^-alpha`` to a training curve.

The form is that of Hestness et al. 2017 (arXiv 1712.00409) and Hoffmann et al. 2022 (arXiv
2203.15556), applied along one run. For a given alpha, E and A are a linear least-squares problem
(variable projection, Golub and Pereyra 1973). It is solved for every alpha of a grid at once, and
then for finer grids around the best alpha. E and A are constrained to be at least zero.

Shapes: R replicates, K exponents, N points; G is R, or 1 if all replicates share one grid.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXPONENTS_K: Array = np.geomspace(0.02, 2.0, 200)
"""Initial exponents of the search; neighbors are 2.3 % apart."""
_FINER = 16
"""Number of parts into which each round divides the distance to a neighboring exponent."""
_ROUNDS = 3
"""Rounds of finer grids; after the last one neighboring exponents differ by 6e-6."""


@dataclass(frozen=True, slots=True)
class PowerLaws:
    """R laws that share a scale of ``t``."""

    floors: Array
    """E, the loss after infinite training, ``(R,)``."""
    amplitudes: Array
    """A, the loss above the floor at ``t = scale``, ``(R,)``."""
    exponents: Array
    scale: float

    def at(self, t_N: Array) -> Array:
        """Return the loss of each law at each ``t``, ``(R, N)``."""
        ratio_N = np.asarray(t_N, dtype=np.float64) / self.scale
        fallen_RN = ratio_N[None, :] ** -self.exponents[:, None]
        loss_RN: Array = self.floors[:, None] + self.amplitudes[:, None] * fallen_RN
        return loss_RN


def fit_power_laws(t_N: Array, loss_RN: Array, weight_N: Array) -> PowerLaws:
    """Fit a weighted least-squares law to each row of ``loss_RN``.

    :param t_N: at least three positive values.
    :param weight_N: inverse variances, up to a common factor.
    """
    scale = float(np.exp(np.average(np.log(t_N), weights=weight_N)))
    log_ratio_N = np.log(t_N / scale)
    w_N = weight_N / weight_N.sum()
    exponents_GK = EXPONENTS_K[None, :]
    spacing = float(np.log(EXPONENTS_K[1] / EXPONENTS_K[0]))
    laws = _best_of(exponents_GK, log_ratio_N, loss_RN, w_N, scale)
    for _ in range(_ROUNDS):
        steps_K = np.linspace(-spacing, spacing, 2 * _FINER + 1)  # includes the best so far
        around_GK = laws.exponents[:, None] * np.exp(steps_K)
        exponents_GK = np.clip(around_GK, EXPONENTS_K[0], EXPONENTS_K[-1])
        laws = _best_of(exponents_GK, log_ratio_N, loss_RN, w_N, scale)
        spacing /= _FINER
    return laws


def _best_of(
    exponents_GK: Array, log_ratio_N: Array, loss_RN: Array, w_N: Array, scale: float
) -> PowerLaws:
    """Return the best law of each row among the given exponents.

    :param log_ratio_N: logarithm of ``t / scale``.
    :param w_N: weights that sum to 1.
    """
    x_GKN = np.exp(-exponents_GK[..., None] * log_ratio_N)
    mean_x_GK = x_GKN @ w_N
    square_x_GK = (x_GKN**2) @ w_N
    mean_y_R = loss_RN @ w_N
    mean_xy_RK = ((loss_RN * w_N)[:, None, :] @ x_GKN.swapaxes(1, 2))[:, 0, :]
    covariance_RK = mean_xy_RK - mean_y_R[:, None] * mean_x_GK
    amplitude_RK = np.maximum(covariance_RK / (square_x_GK - mean_x_GK**2), 0.0)
    floor_RK = mean_y_R[:, None] - amplitude_RK * mean_x_GK
    below_RK = floor_RK < 0
    amplitude_RK = np.where(below_RK, mean_xy_RK / square_x_GK, amplitude_RK)
    floor_RK = np.where(below_RK, 0.0, floor_RK)
    squares_RK = np.empty_like(floor_RK)
    for row, loss_N in enumerate(loss_RN):
        x_KN = x_GKN[row if len(x_GKN) > 1 else 0]
        fitted_KN = floor_RK[row][:, None] + amplitude_RK[row][:, None] * x_KN
        squares_RK[row] = ((loss_N - fitted_KN) ** 2) @ w_N
    best_R = squares_RK.argmin(axis=1)
    row_R = np.arange(len(loss_RN))
    return PowerLaws(
        floors=floor_RK[row_R, best_R],
        amplitudes=amplitude_RK[row_R, best_R],
        exponents=np.broadcast_to(exponents_GK, floor_RK.shape)[row_R, best_R],
        scale=scale,
    )
