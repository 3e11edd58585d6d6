"""Rank configs by their posterior mean rather than by their luckiest run.

The best of many configs is lucky as well as good. So configs are ranked by their posterior mean. It
starts from the mean of a config's runs, each without its seed's effect. That mean is shrunk toward
the campaign's other recipes, by an amount that the noise of so many runs determines
(:mod:`trajectory.statistics.population`).

The difference from the baseline is estimated in the same way, never from the raw runs that chose
the config. Its 95 % interval is Student's t. A config *beats the baseline* if its whole 99 %
interval is on the better side. bench/judge_honesty.py measures how many of these intervals hold,
and how many campaigns make a false claim.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, PositiveInt, Scalar
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence, Evidence, Tally
from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.intervals import LEVEL, RunNoise
from trajectory.statistics.population import Population, Posterior

STAR_LEVEL = 0.99
"""Confidence level for marking a config as better than the baseline.

A campaign compares a hundred configs with one baseline, which may have been unlucky. In the
simulation closest to a real campaign, 13 % of campaigns mark a config falsely at 95 %, and 5 % at
99 %.
"""
SAMPLE = 512
"""Approximate number of configs that a population is fitted to."""
RACE_PRIOR_DOF = 4


@dataclass(frozen=True, slots=True)
class Noise(RunNoise):
    """Noise of one run's score, alone and in a race."""

    sigma_d: float
    """Standard deviation of the difference of two configs on one common seed.

    It is pooled over races, with a prior of ``sqrt(2) sigma``, as if seeds shared nothing. The
    prior has RACE_PRIOR_DOF degrees of freedom.
    """

    @classmethod
    def of(cls, tally: Tally) -> Self | None:
        """Return a campaign's noise; None before any config was replicated."""
        sigma = tally.sigma
        if sigma is None:
            return None
        sum_of_squares = RACE_PRIOR_DOF * 2 * sigma**2 + tally.races_ss
        return cls(
            sigma, tally.within_dof, math.sqrt(sum_of_squares / (RACE_PRIOR_DOF + tally.races_dof))
        )


class Contender(Measured, Protocol):
    """A config that may be ranked, this project's or another tool's."""

    @property
    def iter(self) -> int: ...


E = TypeVar("E", bound=Contender)


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


class Ranked(Frozen):
    """One ranked config of this project's own, as files and programs read it.

    Objectives are scores for which lower is better: the negative of a score to maximize.
    """

    config_hash: str
    config: AnyConfig
    iter: NonNegativeInt
    """Iteration that first proposed it; 0 for the baseline."""
    changes: dict[str, Scalar]
    """Its changes relative to the reference of that iteration."""
    reason: str
    action: str
    n: PositiveInt
    """Number of seeds measured."""
    seeds: tuple[int, ...]
    mean_objective: Finite
    objective: Finite
    objective_lo: Finite | None
    """Lower end of the posterior's 95 % interval; None while the noise is unknown."""
    objective_hi: Finite | None
    delta_vs_baseline: Finite | None
    """Posterior mean of the difference; negative is better. None for the baseline itself, and if
    the baseline has no score."""
    delta_stderr: NonNegative | None
    """Posterior standard deviation of the difference. It and the interval's ends are None while the
    noise is unknown."""
    delta_lo: Finite | None
    delta_hi: Finite | None
    pairs: NonNegativeInt
    """Seeds on which both were measured."""
    beats_baseline: bool
    """Whether the 99 % interval of the difference is below zero."""
    train_s: NonNegative
    """Seconds of training, over all its runs."""
    params: int | None


def top(evidence: Evidence, k: int) -> list[Ranked]:
    """Return the ``k`` best configs by posterior mean, best first.

    Configs that failed on a seed, or trained exactly like another, are not ranked
    (:attr:`~trajectory.evidence.ConfigEvidence.contends`).
    """
    noise = Noise.of(evidence.tally)
    return rank(
        evidence.contenders(),
        k,
        noise=noise,
        population=population_of(evidence, noise),
        baseline=evidence.configs.get(evidence.baseline_hash or ""),
    )


def ranked_config(evidence: Evidence, config_hash: str | None) -> Ranked | None:
    """Return a config as :func:`top` would list it; None if it was not measured."""
    entry = evidence.configs.get(config_hash or "")
    if entry is None or not entry.n:
        return None
    noise = Noise.of(evidence.tally)
    baseline = evidence.configs.get(evidence.baseline_hash or "")
    population = population_of(evidence, noise)
    return rank([entry], 1, noise=noise, population=population, baseline=baseline)[0]


def population_of(evidence: Evidence, noise: Noise | None) -> Population | None:
    """Return the population of all configs that may be ranked, without the baseline.

    If there are very many, it is fitted to a sample of them.
    """
    if noise is None:
        return None
    entries = list(evidence.configs.values())
    sample = [
        entry
        for entry in entries[:: stride(len(entries))]
        if entry.contends and entry.config_hash != evidence.baseline_hash
    ]
    return Population.fit(sample, noise.sigma)


def stride(configs: int) -> int:
    """Return the stride of the sample to which the population is fitted."""
    return max(1, configs // SAMPLE)


def rank(
    entries: Iterable[ConfigEvidence],
    k: int,
    *,
    noise: Noise | None,
    population: Population | None,
    baseline: ConfigEvidence | None,
) -> list[Ranked]:
    """Return the ``k`` best of this project's own configs, ranked by :func:`standings`."""
    placed = standings(entries, k, noise=noise, population=population, baseline=baseline)
    return [_ranked(standing) for standing in placed]


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
        placed.append(_standing(entry, posterior, versus, pairs))
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


def _standing(entry: E, posterior: Posterior, versus: Posterior | None, pairs: int) -> Standing[E]:
    lo, hi = interval(posterior) or (None, None)
    delta_lo, delta_hi = (interval(versus) if versus else None) or (None, None)
    surely = interval(versus, STAR_LEVEL) if versus else None
    return Standing(
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


def _ranked(standing: Standing[ConfigEvidence]) -> Ranked:
    entry = standing.entry
    return Ranked(
        config_hash=entry.config_hash,
        config=entry.config,
        iter=entry.iter,
        changes=entry.changes,
        reason=entry.reason,
        action=entry.action,
        n=entry.n,
        seeds=tuple(sorted(entry.scores)),
        mean_objective=entry.mean,
        objective=standing.objective,
        objective_lo=standing.objective_lo,
        objective_hi=standing.objective_hi,
        delta_vs_baseline=standing.delta_vs_baseline,
        delta_stderr=standing.delta_stderr,
        delta_lo=standing.delta_lo,
        delta_hi=standing.delta_hi,
        pairs=standing.pairs,
        beats_baseline=standing.beats_baseline,
        train_s=entry.train_s,
        params=entry.params,
    )
