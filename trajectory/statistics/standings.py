"""Rank measured configs, this project's or another tool's, by their posterior means."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
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


def standings(
    entries: Iterable[E],
    k: int,
    *,
    noise: RunNoise | None,
    population: Population | None,
    baseline: E | None,
) -> list[Standing[E]]:
    """Return the ``k`` best of these configs by posterior mean, without those not measured.

    Without a population, a config's mean is not shrunk; without noise, there are no intervals. The
    population determines whether seed effects are estimated.
    """
    placeable = _placeable(entries, k, baseline)
    measured = [(entry, believed(entry, noise, population, baseline)) for entry in placeable]
    measured.sort(key=lambda pair: (pair[1].mean, pair[0].mean, pair[0].iter))
    placed = []
    for entry, posterior in measured[:k]:
        versus, pairs = None, 0
        if baseline is not None and baseline.n and baseline is not entry:
            versus = difference(entry, baseline, noise, population)
            pairs = len(entry.scores.keys() & baseline.scores.keys())
        lo, hi = interval(posterior) or (None, None)
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
            )
        )
    return placed


def _placeable(entries: Iterable[E], k: int, baseline: E | None) -> list[E]:
    """Return every config that could be among the k best.

    Among configs measured on the same seeds, posterior means have the order of the means. The
    baseline is the exception, because it is not shrunk.
    """
    alike: dict[tuple[frozenset[int], bool], list[E]] = defaultdict(list)
    for entry in entries:
        if entry.n:
            alike[frozenset(entry.scores), entry is baseline].append(entry)
    return [
        entry
        for group in alike.values()
        for entry in heapq.nsmallest(k, group, key=lambda entry: entry.mean)
    ]


def believed(
    entry: Measured,
    noise: RunNoise | None,
    population: Population | None,
    baseline: Measured | None,
) -> Posterior:
    """Return the posterior of a measured config; its standard deviation is infinite without noise.

    The baseline has its own spread, here and in :func:`difference`, so the two agree.
    """
    if population is not None:
        return population.baseline(entry) if entry is baseline else population.posterior(entry)
    if noise is not None:
        return Posterior(entry.mean, ((noise.sigma**2 / entry.n, noise.dof),))
    return Posterior(entry.mean, ((math.inf, 1),))


def difference(
    entry: Measured, baseline: Measured, noise: RunNoise | None, population: Population | None
) -> Posterior:
    """Return the posterior of the difference from the baseline; that of plain means without a
    population."""
    if population is not None:
        return population.difference(entry, baseline)
    delta = entry.mean - baseline.mean
    if noise is None:
        return Posterior(delta, ((math.inf, 1),))
    return Posterior(delta, ((noise.sigma**2 * (1 / entry.n + 1 / baseline.n), noise.dof),))


def interval(posterior: Posterior, level: float = LEVEL) -> tuple[float, float] | None:
    """Return the posterior's interval at this level; None if the noise is unknown."""
    if not math.isfinite(posterior.sd):
        return None
    half = posterior.half_interval(level)
    return posterior.mean - half, posterior.mean + half


def baseline_estimate(
    baseline: Measured | None, noise: RunNoise | None, population: Population | None
) -> Estimate | None:
    """Return the baseline's posterior mean with its interval, as the ranking has it; None before it
    was measured."""
    if baseline is None or not baseline.n:
        return None
    posterior = believed(baseline, noise, population, baseline)
    lo, hi = interval(posterior) or (None, None)
    return Estimate(posterior.mean, lo, hi, baseline.n)
