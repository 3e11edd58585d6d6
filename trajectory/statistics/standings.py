"""Rank measured configs, this project's or another tool's, by their posterior means."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.intervals import LEVEL, Estimate, RunNoise
from trajectory.statistics.population import Population, Posterior

STAR_LEVEL = 0.99
"""Confidence level for marking a config as better than the baseline.

A campaign compares a hundred configs with one baseline, which may have been unlucky. In the
simulation closest to a real campaign, 13 % of campaigns mark a config falsely at 95 %, and 5 % at
99 %.
"""


E = TypeVar("E", bound=Measured)


@dataclass(frozen=True, slots=True)
class Standing(Generic[E]):
    """Estimated score of a config, and its estimated gain. Lower is better, in any measure."""

    entry: E
    objective: float
    """Posterior mean."""
    objective_lo: float | None
    """Lower end of its 95 % interval; None while the noise is unknown."""
    objective_hi: float | None
    delta_vs_baseline: float | None
    """Posterior mean of the difference; negative is better. None for the baseline itself, and if
    the baseline has no score."""
    delta_stderr: float | None
    """Posterior standard deviation of the difference. It and the interval's ends are None while the
    noise is unknown."""
    delta_lo: float | None
    delta_hi: float | None
    pairs: int
    """Seeds on which both were measured; none are known for another tool's runs."""
    beats_baseline: bool
    """Whether the 99 % interval of the difference is below zero."""
    delta_vs_next: float | None = None
    """Posterior mean of the difference from the next in the ranking; None for the last."""
    half_vs_next: float | None = None
    """Half of its 95 % interval; None while the noise is unknown."""

    @property
    def iter(self) -> int:
        """The entry's iteration, 0 for a baseline measured before the first."""
        return self.entry.iter

    @property
    def n(self) -> int:
        return self.entry.n

    @property
    def mean_objective(self) -> float:
        return self.entry.mean


@dataclass(frozen=True)
class Estimates(Generic[E]):
    """Posteriors of a campaign's configs.

    Without a population, a config's mean is not shrunk; without noise, there are no intervals. The
    population determines whether seed effects are estimated.
    """

    configs: Mapping[str, E]
    baseline: E | None
    """The measured baseline; None if there is none."""
    noise: RunNoise | None
    population: Population | None

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest possible score, beyond which no interval reaches."""
        return -math.inf, math.inf

    def standings(self, entries: Iterable[E], k: int) -> list[Standing[E]]:
        """Return the ``k`` best of these configs by posterior mean, without those not measured."""
        measured = [(entry, self.believed(entry)) for entry in self._placeable(entries, k + 1)]
        measured.sort(key=lambda pair: (pair[1].mean, pair[0].mean, pair[0].iter))
        placed = []
        following = [*(entry for entry, _ in measured[1 : k + 1]), None]
        for (entry, posterior), other in zip(measured[:k], following, strict=False):
            versus, pairs = None, 0
            apart = None if other is None else self._difference(entry, other)
            ends = None if apart is None else interval(apart)
            if self.baseline is not None and self.baseline is not entry:
                versus = self._difference(entry, self.baseline)
                pairs = len(entry.scores.keys() & self.baseline.scores.keys())
            lo, hi = self._span(posterior)
            delta_lo, delta_hi = (interval(versus) if versus else None) or (None, None)
            surely = interval(versus, STAR_LEVEL) if versus else None
            placed.append(
                Standing(
                    entry=entry,
                    objective=posterior.mean,
                    objective_lo=lo,
                    objective_hi=hi,
                    delta_vs_baseline=versus.mean if versus else None,
                    delta_stderr=versus.sd if versus and delta_hi is not None else None,
                    delta_lo=delta_lo,
                    delta_hi=delta_hi,
                    pairs=pairs,
                    beats_baseline=surely is not None and surely[1] < 0,
                    delta_vs_next=apart.mean if apart else None,
                    half_vs_next=ends[1] - apart.mean if apart and ends else None,
                )
            )
        return placed

    def baseline_estimate(self) -> Estimate | None:
        """Return the baseline's posterior mean with its interval; None before it was measured."""
        if self.baseline is None:
            return None
        posterior = self.believed(self.baseline)
        lo, hi = self._span(posterior)
        return Estimate(posterior.mean, lo, hi, self.baseline.n)

    def believed(self, entry: E) -> Posterior:
        """Return the posterior of a measured config; its standard deviation is infinite without
        noise. The baseline has its own spread, here and in differences from it, so the two agree.
        """
        if self.population is not None:
            is_baseline = entry is self.baseline
            return (self.population.baseline if is_baseline else self.population.posterior)(entry)
        return Posterior(entry.mean, (self._variance(1 / entry.n),))

    def _span(self, posterior: Posterior) -> tuple[float, float] | tuple[None, None]:
        """Return the ends of a score's interval, within the limits."""
        ends, (low, high) = interval(posterior), self.limits
        return (max(low, ends[0]), min(high, ends[1])) if ends else (None, None)

    def _difference(self, entry: E, other: E) -> Posterior:
        if self.population is None:
            variance = self._variance(1 / entry.n + 1 / other.n)
            return Posterior(entry.mean - other.mean, (variance,))
        if other is self.baseline:
            return self.population.difference(entry, other)
        if entry is self.baseline:
            return self.population.difference(other, entry).negative
        return self.population.between(entry, other)

    def _variance(self, factor: float) -> tuple[float, float]:
        """Return so many times a run's variance, with its degrees of freedom."""
        noise = self.noise
        return (math.inf, 1) if noise is None else (noise.sigma**2 * factor, noise.dof)

    def _placeable(self, entries: Iterable[E], k: int) -> list[E]:
        """Return every config that could be among the k best.

        Among configs measured on the same seeds, posterior means have the order of the means. The
        baseline is the exception, because it is not shrunk.
        """
        alike: dict[tuple[frozenset[int], bool], list[E]] = defaultdict(list)
        for entry in entries:
            if entry.n:
                alike[frozenset(entry.scores), entry is self.baseline].append(entry)
        return [
            entry
            for group in alike.values()
            for entry in heapq.nsmallest(k, group, key=lambda entry: entry.mean)
        ]


def interval(posterior: Posterior, level: float = LEVEL) -> tuple[float, float] | None:
    """Return the posterior's interval at this level; None if the noise is unknown."""
    if not math.isfinite(posterior.sd):
        return None
    half = posterior.half_interval(level)
    return posterior.mean - half, posterior.mean + half
