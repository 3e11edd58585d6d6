"""Fit many scaling laws at once, robustly and in log space (:mod:`funnel.forecast.scaling_law`).

The model is ``ln L = logsumexp(e, a - alpha n, b - beta d)``, where ``n`` and ``d`` are the
logarithms of parameters and tokens about their means. Hoffmann et al. 2022 (arXiv 2203.15556,
section D.2) and Besiroglu et al. 2024 (arXiv 2404.10102) fit this form with a Huber loss on the
residuals of ``ln L``. Their loss becomes linear at 1e-3. Here it becomes linear at ``HUBER_K``
standard deviations of the runs' own scatter. A ladder has ten runs instead of 245, and a nearly
absolute loss would discard a third of their information. The fit uses Levenberg-Marquardt on
iteratively reweighted residuals.

A ladder of a few rungs with about the same tokens per parameter cannot determine five parameters.
So each has a weak prior (``PRIOR_SD``). Where the runs carry no information, the replicates spread
like the prior, and the band is wide rather than wrong. Dozens of runs outweigh the prior.

Shapes: R fits, M runs, 5 parameters: ``e, a, b, ln alpha, ln beta``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HUBER_K = 1.345
"""Standard deviations at which the loss becomes linear: 95 % efficient for normal scatter (Huber).
"""
HUBER_SQUARE = 0.7102
"""Mean square of a standard normal variable clipped at ``HUBER_K``."""
PRIOR_EXPONENT = 0.34
"""Prior mean of both exponents.

Published alpha and beta: 0.34 and 0.28 (Hoffmann et al. 2022), 0.35 and 0.37 (Besiroglu et al.
2024), 0.35 (Muennighoff et al. 2023, arXiv 2305.16264).
"""
PRIOR_FLOOR_SHARE = 0.6
"""Prior mean of the floor, as a share of the lowest loss.

Chinchilla's floor is 1.69 or 1.82, with losses from 2 to 3.2.
"""
PRIOR_TERM_SHARE = 0.2
"""Prior mean of the parameter term and of the token term at the runs' mean size, as a share of the
lowest loss."""
PRIOR_SD: Array = np.array([0.4, 1.0, 1.0, 0.35, 0.35])
"""Prior standard deviations of the logarithms of the floor, of both terms, and of both
exponents."""

_ITERATIONS = 80
_CONVERGED = 1e-7
_STUCK = 1e8


@dataclass(frozen=True, slots=True)
class Problem:
    """R data sets of the same M runs."""

    log_params: Array
    """``n``, ``(M,)``."""
    log_tokens: Array
    """``d``, ``(M,)``."""
    log_loss: Array
    """``ln L``, ``(R, M)``."""
    scatter: Array
    """Sd of one run, ``(R,)``."""
    prior: Array
    """Prior means, ``(R, 5)``."""

    def rows(self, index: NDArray[np.intp]) -> Problem:
        """Return the data sets with these indices."""
        return replace(
            self,
            log_loss=self.log_loss[index],
            scatter=self.scatter[index],
            prior=self.prior[index],
        )


def prior_mean(y_M: Array) -> Array:
    """Return the prior means, ``(5,)``, for runs whose ``n`` and ``d`` have mean zero."""
    least = float(y_M.min())
    exponent = np.log(PRIOR_EXPONENT)
    term = least + np.log(PRIOR_TERM_SHARE)
    return np.array([least + np.log(PRIOR_FLOOR_SHARE), term, term, exponent, exponent])


def starts(y_M: Array) -> Array:
    """Return starting points, ``(S, 5)``: a grid about the prior, to find the global minimum."""
    grid = np.array(np.meshgrid([-0.9, 0.0, 0.35], [-0.8, 0.0, 0.7], [-0.8, 0.0, 0.7]))
    floor_S, alpha_S, beta_S = grid.reshape(3, -1)
    start_S5 = np.tile(prior_mean(y_M), (len(floor_S), 1))
    start_S5[:, 0] += floor_S
    start_S5[:, 3] += alpha_S
    start_S5[:, 4] += beta_S
    return start_S5


def log_loss(theta_R5: Array, n_M: Array, d_M: Array) -> tuple[Array, Array]:
    """Return ``ln L``, ``(R, M)``, and the share of each of its three terms, ``(3, R, M)``."""
    alpha_R, beta_R = np.exp(theta_R5[:, 3]), np.exp(theta_R5[:, 4])
    terms_3RM = np.empty((3, len(theta_R5), len(n_M)))
    terms_3RM[0] = theta_R5[:, 0, None]
    terms_3RM[1] = theta_R5[:, 1, None] - alpha_R[:, None] * n_M
    terms_3RM[2] = theta_R5[:, 2, None] - beta_R[:, None] * d_M
    top_RM = terms_3RM.max(axis=0)
    share_3RM = np.exp(terms_3RM - top_RM)
    total_RM = share_3RM.sum(axis=0)
    return top_RM + np.log(total_RM), share_3RM / total_RM


def minimise(theta_R5: Array, problem: Problem) -> tuple[Array, Array]:
    """Return each data set's best law from its start, ``(R, 5)``, and its objective, ``(R,)``."""
    theta_R5 = theta_R5.copy()
    damping_R = np.full(len(theta_R5), 1e-3)
    value_R = _objective(theta_R5, problem)
    going = np.arange(len(theta_R5))
    for _ in range(_ITERATIONS):
        here = problem.rows(going)
        tried_G5 = theta_R5[going] + np.clip(
            _step(theta_R5[going], here, damping_R[going]), -1.0, 1.0
        )
        tried_G = _objective(tried_G5, here)
        gain_G = value_R[going] - tried_G
        better_G = gain_G >= 0
        theta_R5[going[better_G]] = tried_G5[better_G]
        value_R[going[better_G]] = tried_G[better_G]
        damping_R[going] = np.where(better_G, damping_R[going] / 5, damping_R[going] * 6)
        done_G = better_G & (gain_G < _CONVERGED * (1 + tried_G))
        going = going[~done_G & (damping_R[going] < _STUCK)]
        if len(going) == 0:
            break
    return theta_R5, value_R


def effective_parameters(theta_5: Array, problem: Problem) -> float:
    """Return the number of parameters determined by the runs: the trace of the hat matrix."""
    jacobian_RM5 = _jacobian(theta_5[None], problem) / problem.scatter[:, None, None]
    information = jacobian_RM5[0].T @ jacobian_RM5[0]
    return float(np.trace(np.linalg.solve(information + np.diag(PRIOR_SD**-2.0), information)))


def _objective(theta_R5: Array, problem: Problem) -> Array:
    fitted_RM, _ = log_loss(theta_R5, problem.log_params, problem.log_tokens)
    size_RM = np.abs(fitted_RM - problem.log_loss) / problem.scatter[:, None]
    huber_RM = np.where(size_RM <= HUBER_K, size_RM**2 / 2, HUBER_K * (size_RM - HUBER_K / 2))
    prior_R = (((theta_R5 - problem.prior) / PRIOR_SD) ** 2).sum(axis=1) / 2
    value_R: Array = huber_RM.sum(axis=1) + prior_R
    return value_R


def _jacobian(theta_R5: Array, problem: Problem) -> Array:
    """Return the derivatives of ``ln L`` with respect to the parameters, ``(R, M, 5)``."""
    _, share_3RM = log_loss(theta_R5, problem.log_params, problem.log_tokens)
    floor_RM, a_RM, b_RM = share_3RM
    alpha_R, beta_R = np.exp(theta_R5[:, 3]), np.exp(theta_R5[:, 4])
    by_alpha_RM = -a_RM * alpha_R[:, None] * problem.log_params
    by_beta_RM = -b_RM * beta_R[:, None] * problem.log_tokens
    return np.stack([floor_RM, a_RM, b_RM, by_alpha_RM, by_beta_RM], axis=-1)


def _step(theta_R5: Array, problem: Problem, damping_R: Array) -> Array:
    sigma_R1 = problem.scatter[:, None]
    fitted_RM, _ = log_loss(theta_R5, problem.log_params, problem.log_tokens)
    residual_RM = (fitted_RM - problem.log_loss) / sigma_R1
    weight_RM = np.minimum(1.0, HUBER_K / np.maximum(np.abs(residual_RM), 1e-12))
    jacobian_RM5 = _jacobian(theta_R5, problem) / sigma_R1[..., None]
    weighted_RM5 = jacobian_RM5 * weight_RM[..., None]
    hessian_R55 = weighted_RM5.swapaxes(1, 2) @ jacobian_RM5 + np.diag(PRIOR_SD**-2.0)
    gradient_R5 = (weighted_RM5 * residual_RM[..., None]).sum(axis=1)
    gradient_R5 += (theta_R5 - problem.prior) / PRIOR_SD**2
    diagonal_R5 = np.diagonal(hessian_R55, axis1=1, axis2=2)
    damped_R55 = hessian_R55 + np.eye(5) * (damping_R[:, None] * diagonal_R5)[:, :, None]
    step_R5: Array = -np.linalg.solve(damped_R55, gradient_R5[..., None])[..., 0]
    return step_R5
