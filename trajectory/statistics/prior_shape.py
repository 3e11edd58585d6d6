"""Estimate the distribution of the true means of a campaign's recipes, without a parametric form.

A campaign's recipes are not normally distributed. They form clusters near each incumbent, of
children that change little or nothing. There is a long tail of changes that made it worse, and a
downward drift over time. Shrinkage toward one mean would leave the luck of the best config in the
last cluster uncorrected.

So the shape of the distribution is estimated too: a mixture of narrow normals on a grid, with
weights by expectation maximization (nonparametric maximum likelihood, Kiefer and Wolfowitz 1956;
Efron, "Empirical Bayes: Concepts and Methods", 2021). A grid of point masses would make intervals
too narrow, so the normals are as wide as the grid's spacing.

Shapes: C configs, K places of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SPACING = 0.25
"""Spacing of the grid in standard deviations of one run: it resolves what four runs can
distinguish."""
MOST_PLACES = 200
FINE = 401
"""Number of places at which the spacing is evaluated."""
FIRST_ROUNDS, MORE_ROUNDS = 60, 10
"""Rounds of expectation maximization, for a new shape and for an update."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The mixture: means ``place`` ``[K]`` and standard deviations ``width`` ``[K]`` in bits per
    byte, and ``weight`` ``[K]``."""

    place: Floats
    width: Floats
    weight: Floats
    run_variance: Floats
    """[K]: variance of one run of a recipe at each place."""

    @classmethod
    def fit(
        cls, seen_C: Floats, n_C: Floats, run_variance: Callable[[Floats], Floats], old: Self | None
    ) -> Self:
        """Fit the shape to these means of ``n_C`` runs by maximum likelihood.

        :param run_variance: returns the variance of one run by the score.
        :param old: shape to start from.
        """
        place = _grid(float(seen_C.min()), float(seen_C.max()), run_variance)
        width = np.gradient(place) if len(place) > 1 else _spacing(place, run_variance)
        weight = np.full(len(place), 1 / len(place))
        if old is not None and min(len(place), len(old.place)) > 1:
            density = np.interp(place, old.place, old.weight / old.width)
            weight = density * width + 1e-4 / len(place)
            weight /= weight.sum()
        shape = cls(place, width, weight, run_variance(place))
        likelihood_CK = shape._likelihoods(seen_C, n_C)
        for _ in range(FIRST_ROUNDS if old is None else MORE_ROUNDS):
            share_CK = likelihood_CK * weight
            weight = (share_CK / share_CK.sum(axis=1, keepdims=True)).mean(axis=0)
        return cls(place, width, weight, shape.run_variance)

    def believed(self, seen_C: Floats, n_C: Floats) -> tuple[Floats, Floats]:
        """Return posterior means and variances of the true scores behind these means."""
        share_CK = self._likelihoods(seen_C, n_C) * self.weight
        share_CK /= share_CK.sum(axis=1, keepdims=True)
        noise_CK = self.run_variance / n_C[:, None]
        shrinkage_CK = noise_CK / (noise_CK + self.width**2)
        mean_CK = seen_C[:, None] - shrinkage_CK * (seen_C[:, None] - self.place)
        mean_C = (share_CK * mean_CK).sum(axis=1)
        spread_CK = self.width**2 * shrinkage_CK + (mean_CK - mean_C[:, None]) ** 2
        return mean_C, (share_CK * spread_CK).sum(axis=1)

    def _likelihoods(self, seen_C: Floats, n_C: Floats) -> Floats:
        """Return likelihoods ``[C, K]``, each row up to a factor."""
        variance_CK = self.run_variance / n_C[:, None] + self.width**2
        log_CK = -((seen_C[:, None] - self.place) ** 2) / (2 * variance_CK)
        log_CK -= np.log(variance_CK) / 2
        likelihood_CK: Floats = np.exp(log_CK - log_CK.max(axis=1, keepdims=True))
        return likelihood_CK


def _grid(low: float, high: float, run_variance: Callable[[Floats], Floats]) -> Floats:
    """Return a grid from low to high, with steps proportional to the local noise."""
    fine = np.linspace(low, high, FINE)
    steps_per_bpb = 1 / np.maximum(_spacing(fine, run_variance), (high - low) / MOST_PLACES + 1e-12)
    reached = np.concatenate([[0.0], np.cumsum(steps_per_bpb[:-1] * np.diff(fine))])
    return np.interp(np.linspace(0, reached[-1], math.ceil(reached[-1]) + 1), reached, fine)


def _spacing(place: Floats, run_variance: Callable[[Floats], Floats]) -> Floats:
    return SPACING * np.sqrt(run_variance(place))
