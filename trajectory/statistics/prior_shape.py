"""Where the true means of a campaign's recipes lie: a distribution of no given form.

A night's recipes are no normal population: clusters about each incumbent (children worth nothing,
or nearly), a long tail of what made it worse, and a drift downwards as the night goes on. Shrinking
towards one mean would leave the luck of whoever leads the last cluster as it is. So the
distribution is estimated with its form: a mixture of narrow normals on a grid, its weights by
expectation maximisation (nonparametric maximum likelihood, Kiefer and Wolfowitz 1956; Efron,
"Empirical Bayes: Concepts and Methods", 2021). A grid of point masses would make intervals too
narrow; the normals are as wide as the grid's spacing.

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
"""The grid's spacing in sds of one run: it resolves what four runs can tell apart."""
MOST_PLACES = 200
FINE = 401
"""Places at which the spacing is looked up."""
FIRST_ROUNDS, MORE_ROUNDS = 60, 10
"""Rounds of expectation maximisation: for a new shape, and for one that only moves on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The mixture. ``place`` ``[K]`` bits per byte, ``width`` ``[K]`` sds, ``weight`` ``[K]``."""

    place: Floats
    width: Floats
    weight: Floats
    run_variance: Floats
    """[K]: of one run of a recipe that scores so."""

    @classmethod
    def fit(
        cls, seen_C: Floats, n_C: Floats, run_variance: Callable[[Floats], Floats], old: Self | None
    ) -> Self:
        """The shape that explains these means of ``n_C`` runs best.

        :param run_variance: of one run, by the score.
        :param old: where to start from.
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
        """Posterior means and variances of the true scores behind these means."""
        share_CK = self._likelihoods(seen_C, n_C) * self.weight
        share_CK /= share_CK.sum(axis=1, keepdims=True)
        noise_CK = self.run_variance / n_C[:, None]
        shrinkage_CK = noise_CK / (noise_CK + self.width**2)
        mean_CK = seen_C[:, None] - shrinkage_CK * (seen_C[:, None] - self.place)
        mean_C = (share_CK * mean_CK).sum(axis=1)
        spread_CK = self.width**2 * shrinkage_CK + (mean_CK - mean_C[:, None]) ** 2
        return mean_C, (share_CK * spread_CK).sum(axis=1)

    def _likelihoods(self, seen_C: Floats, n_C: Floats) -> Floats:
        """``[C, K]``, each row up to a factor."""
        variance_CK = self.run_variance / n_C[:, None] + self.width**2
        log_CK = -((seen_C[:, None] - self.place) ** 2) / (2 * variance_CK)
        log_CK -= np.log(variance_CK) / 2
        likelihood_CK: Floats = np.exp(log_CK - log_CK.max(axis=1, keepdims=True))
        return likelihood_CK


def _grid(low: float, high: float, run_variance: Callable[[Floats], Floats]) -> Floats:
    """From low to high, steps as wide as the noise there warrants."""
    fine = np.linspace(low, high, FINE)
    steps_per_bpb = 1 / np.maximum(_spacing(fine, run_variance), (high - low) / MOST_PLACES + 1e-12)
    reached = np.concatenate([[0.0], np.cumsum(steps_per_bpb[:-1] * np.diff(fine))])
    return np.interp(np.linspace(0, reached[-1], math.ceil(reached[-1]) + 1), reached, fine)


def _spacing(place: Floats, run_variance: Callable[[Floats], Floats]) -> Floats:
    return SPACING * np.sqrt(run_variance(place))
