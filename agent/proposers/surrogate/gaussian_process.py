"""Fit a Gaussian process over a menu's knobs, sized for about a hundred configs.

The covariance of two configs is ``s² (1 + u + u²/3) exp(-u)``, Matérn's with nu = 5/2, where ``u² =
5 sum_k (d_k / l_k)²`` and d_k is their distance in knob k (Rasmussen and Williams, *Gaussian
Processes for Machine Learning*, 2006, eq. 4.17). Each knob has a length scale of its own, so the
knobs that matter are found (automatic relevance determination). A run's noise is known from the
campaign and refined: one factor multiplies the given variances.

Length scales, output scale and that factor are the most probable ones, with log-normal priors, so
that ten configs do not settle which of sixteen knobs matter. The prior of a length scale grows with
the square root of the number of knobs, as distances do (Hvarfner, Hellsten and Nardi 2024, arXiv
2402.02229). They are found by resilient propagation (Riedmiller and Braun 1993) with a closed-form
gradient, which costs no more than the likelihood itself.

It is written out here because no installed library has it, and others take seconds per ask or a
second to load (docs/search.md).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from agent.proposers.surrogate.space import Floats

STEPS = 25
"""Steps of the search for the most probable parameters."""
FIRST_STEP, LONGEST_STEP, GROW, SHRINK = 0.4, 1.0, 1.3, 0.5
LENGTH_SD, SCALE_SD, NOISE_SD = 1.0, 1.0, 0.5
"""Standard deviations of the priors, in natural logarithms."""
FARTHEST = 5.0
"""Largest change of a parameter's logarithm from its start."""
JITTER = 1e-6
SMALL = 32
"""Rows of a triangle that is not worth halving."""


@dataclass(frozen=True, slots=True)
class _Data:
    points: Floats
    """[N, P]"""
    targets: Floats
    """[N]"""
    variances: Floats
    """[N]: variance of the noise in each target."""
    knobs: NDArray[np.intp]
    """[P]: knob of each coordinate."""

    @property
    def count(self) -> int:
        """K, the number of knobs."""
        return int(self.knobs[-1]) + 1


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A fitted process and its data."""

    data: _Data
    parameters: Floats
    """[K + 2]: logarithms of the length scales, of s² and of the noise factor."""
    level: float
    """Prior mean of the scores."""
    weights: Floats
    """[N]"""
    inverse: Floats
    """[N, N]: inverse of the targets' covariance."""

    @classmethod
    def fit(
        cls, points_NP: Floats, target_N: Floats, variance_N: Floats, knob_P: NDArray[np.intp]
    ) -> Self:
        """Return the process with the most probable parameters.

        :param target_N: of size about 1 around zero.
        :param variance_N: variance of the noise in each target.
        :param knob_P: knob of each coordinate.
        """
        data = _Data(points_NP, target_N, variance_N, knob_P)
        arrays = points_NP, target_N, variance_N, knob_P
        return cls._given(data, _most_probable(*(array.tobytes() for array in arrays)))

    def about(self, points_NP: Floats, target_N: Floats, variance_N: Floats) -> Self:
        """Return a process with the same parameters, and other targets or points."""
        data = _Data(points_NP, target_N, variance_N, self.data.knobs)
        return self._given(data, self.parameters)

    def predict(self, points_MP: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation at other points, without the noise of a run."""
        lengths_P = np.exp(self.parameters[:-2])[self.data.knobs]
        scale = float(np.exp(self.parameters[-2]))
        between_MN = scale * _correlation(points_MP / lengths_P, self.data.points / lengths_P)[0]
        mean_M = self.level + between_MN @ self.weights
        known_M = np.einsum("mn,mn->m", between_MN @ self.inverse, between_MN)
        return mean_M, np.sqrt(np.maximum(scale - known_M, JITTER))

    @classmethod
    def _given(cls, data: _Data, parameters: Floats) -> Self:
        inverse_NN, _, _ = _inverse(data, parameters)
        level = _level(inverse_NN, data.targets)
        return cls(data, parameters, level, inverse_NN @ (data.targets - level), inverse_NN)


def _correlation(points_MP: Floats, others_NP: Floats) -> tuple[Floats, Floats]:
    """Return the Matérn correlation of points already divided by the length scales, and the factor
    of its derivatives."""
    squares_MN = (
        np.einsum("mp,mp->m", points_MP, points_MP)[:, None]
        + np.einsum("np,np->n", others_NP, others_NP)[None, :]
        - 2 * points_MP @ others_NP.T
    )
    u_MN = np.sqrt(np.maximum(5 * squares_MN, 0))
    decay_MN = np.exp(-u_MN)
    slope_MN: Floats = 5 / 3 * (1 + u_MN) * decay_MN
    correlation_MN: Floats = (1 + u_MN + u_MN**2 / 3) * decay_MN
    return correlation_MN, slope_MN


def _inverse(data: _Data, parameters: Floats) -> tuple[Floats, float, tuple[Floats, Floats]]:
    """Return the inverse of the targets' covariance, the logarithm of its determinant, and its
    parts."""
    lengths_P = np.exp(parameters[:-2])[data.knobs]
    scale, noise = np.exp(parameters[-2:])
    parts = _correlation(data.points / lengths_P, data.points / lengths_P)
    covariance_NN = scale * parts[0] + np.diag(noise * data.variances + JITTER)
    root_NN = _lower_inverse(np.linalg.cholesky(covariance_NN))
    return root_NN.T @ root_NN, -2 * float(np.log(np.diag(root_NN)).sum()), parts


def _lower_inverse(lower_NN: Floats) -> Floats:
    """Invert a lower triangle by halves: numpy's own inverse ignores the zeros, and takes two and a
    half times as long for a hundred configs."""
    count = len(lower_NN)
    if count <= SMALL:
        return np.asarray(np.linalg.inv(lower_NN), dtype=np.float64)
    half = count // 2
    inverse_NN = np.zeros_like(lower_NN)
    above = inverse_NN[:half, :half] = _lower_inverse(lower_NN[:half, :half])
    below = inverse_NN[half:, half:] = _lower_inverse(lower_NN[half:, half:])
    inverse_NN[half:, :half] = -below @ (lower_NN[half:, :half] @ above)
    return inverse_NN


def _level(inverse_NN: Floats, target_N: Floats) -> float:
    weight_N = inverse_NN.sum(axis=0)
    return float(weight_N @ target_N / weight_N.sum())


@lru_cache(maxsize=1)
def _most_probable(points: bytes, targets: bytes, variances: bytes, knobs: bytes) -> Floats:
    """Return the most probable parameters by resilient propagation: a parameter's step grows while
    its gradient keeps its sign.

    They are remembered, since all draws of a slate fit the same data.
    """
    knob_P = np.frombuffer(knobs, dtype=np.intp)
    points_NP = np.frombuffer(points).reshape(-1, len(knob_P))
    data = _Data(points_NP, np.frombuffer(targets), np.frombuffer(variances), knob_P)
    mean = np.array([math.log(0.25 * math.sqrt(data.count))] * data.count + [0.0, 0.0])
    sd = np.array([LENGTH_SD] * data.count + [SCALE_SD, NOISE_SD])
    parameters, best, most = mean.copy(), mean, -math.inf
    step, before = np.full(len(mean), FIRST_STEP), np.zeros(len(mean))
    for _ in range(STEPS):
        likely, gradient = _log_likelihood(data, parameters)
        away = (parameters - mean) / sd
        probable = likely - 0.5 * float(away @ away)
        gradient = gradient - away / sd
        if probable > most:
            best, most = parameters, probable
        agree = np.sign(gradient * before)
        step = np.clip(step * np.where(agree < 0, SHRINK, GROW), 1e-3, LONGEST_STEP)
        before = np.where(agree < 0, 0, gradient)
        moved = parameters + np.sign(gradient) * step
        parameters = np.clip(moved, mean - FARTHEST, mean + FARTHEST)
    return best


def _log_likelihood(data: _Data, parameters: Floats) -> tuple[float, Floats]:
    """Return the log-likelihood of the targets up to a constant, and its gradient."""
    inverse_NN, log_determinant, (correlation_NN, slope_NN) = _inverse(data, parameters)
    scale, noise = np.exp(parameters[-2:])
    rest_N = data.targets - _level(inverse_NN, data.targets)
    weights_N = inverse_NN @ rest_N
    likely = -0.5 * (float(rest_N @ weights_N) + log_determinant)
    pull_NN = np.outer(weights_N, weights_N) - inverse_NN
    scaled_NP = data.points / np.exp(parameters[:-2])[data.knobs]
    bent_NN = scale * pull_NN * slope_NN
    # sum_ij B_ij (z_i - z_j)² for a symmetric B, coordinate by coordinate, halved
    by_P = bent_NN.sum(axis=0) @ scaled_NP**2
    by_P -= np.einsum("np,np->p", scaled_NP, bent_NN @ scaled_NP)
    return likely, np.concatenate(
        [
            np.bincount(data.knobs, by_P),
            [0.5 * scale * float((pull_NN * correlation_NN).sum())],
            [0.5 * noise * float(np.diag(pull_NN) @ data.variances)],
        ]
    )
