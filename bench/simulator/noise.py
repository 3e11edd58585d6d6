"""The noise of one run.

Of it are simulated: how large it is for a config (a wild one is ten times as noisy as a tame one,
seed after seed), how heavy its tails are towards worse scores (a ruined run is common, a miracle is
not), and how much of it configs share on a seed. The last falls with their distance, in which a
knob counts by what it does to the score: a child whose edit does little is lucky with its parent,
and two configs that have little in common are lucky apart. So the luck of a seed is a random field
over the encoded menu, of covariance ``shared × exp(-distance / reach)``, and the rest is each run's
own. What a table's replicates say of all this is found out in :mod:`bench.simulator.replicates`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Protocol

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, stdtrit

from bench.simulator.encoding import Matrix
from bench.simulator.surrogate import Vector

WAVES = 192
"""Of which the field of a seed is made."""
MOST_DOF = 60.0
"""From which on tails are as good as a Gaussian's."""
_MIDDLES = 20_000


class Sizes(Protocol):
    """How large the noise of a config is."""

    def of(self, row: Vector, config_hash: str, truth: float) -> float:
        """The scale of its runs' noise; see :class:`Shape`.

        :param row: the encoded config.
        :param truth: its score without noise.
        """
        ...


@dataclass(frozen=True)
class ByLevel:
    """As large as that of others that score so."""

    levels: tuple[float, ...]
    """Scores, ascending, between which the scale is interpolated."""
    scales: tuple[float, ...]

    def of(self, row: Vector, config_hash: str, truth: float) -> float:
        """See :class:`Sizes`."""
        return float(np.interp(truth, self.levels, self.scales))

    def __str__(self) -> str:
        ends = f"scale {self.scales[0]:.4f} at {self.levels[0]:.3f}"
        if len(self.levels) > 1:
            ends += f" to {self.scales[-1]:.4f} at {self.levels[-1]:.3f}"
        return ends


@dataclass(frozen=True)
class Shape:
    """How one run's noise is distributed, in scales, about a mean of 0: what is better than the
    mode as a Gaussian has it, what is worse as Student's t."""

    dof: float
    """Of the worse half; from MOST_DOF on it is a Gaussian, too."""
    worst: float = math.inf
    """Nothing worse than the mode by more than this is drawn."""

    @property
    def better_share(self) -> float:
        """Of runs that are better than the mode: the density has no step there."""
        return 1 / (1 + math.exp(log_peak(MOST_DOF) - log_peak(self.dof)))

    def at(self, luck: float) -> float:
        """The noise of a run of this luck, a standard normal number; small is good."""
        return float(self.quantiles(np.array([ndtr(luck)]))[0]) - self._mean

    def quantiles(self, shares: Vector) -> Vector:
        """Before the mean is taken off."""
        shares, better = np.clip(shares, 1e-12, 1 - 1e-12), self.better_share
        below = ndtri(np.minimum(shares / (2 * better), 0.5))
        above = -stdtrit(self.dof, np.minimum((1 - shares) / (2 * (1 - better)), 0.5))
        cut: Vector = np.where(shares < better, below, np.minimum(above, self.worst))
        return cut

    @cached_property
    def _mean(self) -> float:
        return float(self.quantiles((np.arange(_MIDDLES) + 0.5) / _MIDDLES).mean())

    def __str__(self) -> str:
        tails = "Gaussian" if self.dof >= MOST_DOF else f"t of {self.dof:.1f} degrees"
        return f"better runs Gaussian, worse ones {tails} to {self.worst:.0f} scales"


def log_peak(dof: float) -> float:
    """Logarithm of the density of Student's t at 0."""
    if dof >= MOST_DOF:
        return -0.5 * math.log(2 * math.pi)
    return float(gammaln((dof + 1) / 2) - gammaln(dof / 2) - math.log(dof * math.pi) / 2)


@dataclass(frozen=True)
class NoiseModel:
    """What one run's score is off by."""

    sizes: Sizes
    shape: Shape
    shared: float
    """Correlation of two runs of one seed as their configs draw near to each other."""
    reach: float
    """Distance by which that has fallen to 1/e."""
    weights: Vector
    """Of the encoded menu's columns in that distance."""
    configs: int
    """Run more than once, from which all this is."""
    _fields: dict[int, tuple[Vector, Vector]] = field(default_factory=dict, repr=False)

    def of(self, row: Vector, config_hash: str, seed: int, truth: float) -> float:
        """The noise of this config's run on this seed, always the same."""
        own = Random(f"own:{config_hash}:{seed}").gauss(0, 1)
        luck = math.sqrt(self.shared) * self._luck(row, seed) + math.sqrt(1 - self.shared) * own
        return self.sizes.of(row, config_hash, truth) * self.shape.at(luck)

    def _luck(self, row: Vector, seed: int) -> float:
        """The field of a seed at a config: standard normal there."""
        if not self.shared:
            return 0.0
        if seed not in self._fields:
            rng = np.random.default_rng([7, seed])
            self._fields[seed] = (rng.standard_normal(WAVES), rng.standard_normal(WAVES))
        cosines, sines = self._fields[seed]
        phases = _frequencies(len(self.weights)) @ (self.weights * row) / self.reach
        waves = cosines @ np.cos(phases) + sines @ np.sin(phases)
        return float(waves) / math.sqrt(WAVES)

    def __str__(self) -> str:
        return (
            f"{self.sizes}; {self.shape}; shared on a seed {self.shared:.2f}, falling by 1/e in "
            f"{self.reach:.2f} (from {self.configs} configs that were run more than once)"
        )


_FREQUENCIES: dict[int, Matrix] = {}


def _frequencies(columns: int) -> Matrix:
    """Draws of the spectrum of exp(-distance): a Cauchy distribution of so many dimensions."""
    if columns not in _FREQUENCIES:
        rng = np.random.default_rng(columns)
        normal = rng.standard_normal((WAVES, columns))
        _FREQUENCIES[columns] = normal / np.abs(rng.standard_normal((WAVES, 1)))
    return _FREQUENCIES[columns]
