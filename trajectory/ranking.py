"""The best configs, by what they can be believed to score rather than by their luckiest run.

The best of many is lucky as well as good. So configs are ranked by their posterior mean: the mean
of their runs, each without its seed's effect, shrunk towards where the campaign's other recipes lie
by as much as the noise of so many runs warrants (:mod:`trajectory.statistics.population`).

The difference to the baseline is told in the same way, never from the very runs that chose the
config: it is believed, and has a 95 % interval of Student's t. A config *beats the baseline*
where its whole 99 % interval lies on the better side. How many of these intervals hold, and how
many campaigns claim what is not so, bench/judge_honesty.py measures.
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
from trajectory.statistics.population import Population, Posterior
from trajectory.statistics.run_noise import LEVEL, RunNoise

STAR_LEVEL = 0.99
"""The confidence of a mark. A campaign has a hundred configs to mark, and one baseline that may
have been unlucky for all of them: in the simulated world nearest to a real campaign 13 % of
campaigns mark one falsely at 95 %, 5 % at 99 %."""
SAMPLE = 512
"""Configs, about, that a population is fitted to."""
RACE_PRIOR_DOF = 4


@dataclass(frozen=True, slots=True)
class Noise(RunNoise):
    """What one run's score is worth, alone and in a race."""

    sigma_d: float
    """Sd of the difference of two configs on one common seed: pooled over races, with
    ``sqrt(2) sigma``, as if seeds shared nothing, weighing RACE_PRIOR_DOF degrees of freedom."""

    @classmethod
    def of(cls, tally: Tally) -> Self | None:
        """None before any config was replicated."""
        sigma = tally.sigma
        if sigma is None:
            return None
        sum_of_squares = RACE_PRIOR_DOF * 2 * sigma**2 + tally.races_ss
        return cls(
            sigma, tally.within_dof, math.sqrt(sum_of_squares / (RACE_PRIOR_DOF + tally.races_dof))
        )


class Contender(Measured, Protocol):
    """A config that may be ranked, ours or another tool's."""

    @property
    def iter(self) -> int: ...


E = TypeVar("E", bound=Contender)


@dataclass(frozen=True, slots=True)
class Standing(Generic[E]):
    """What a config is believed to score and to gain. Lower is better, in whatever measure."""

    entry: E
    objective: float
    """Posterior mean."""
    objective_lo: float | None
    """Its 95 % interval; None while the noise is unknown."""
    objective_hi: float | None
    delta_vs_baseline: float | None
    """As believed; negative is better. None for the baseline itself and where it has no score."""
    delta_stderr: float | None
    """Its posterior sd; None while the noise is unknown, as are the interval's ends."""
    delta_lo: float | None
    delta_hi: float | None
    pairs: int
    """Seeds that both were measured on; of another tool's runs none is known."""
    beats_baseline: bool
    """The 99 % interval of the difference lies below zero."""

    @property
    def iter(self) -> int:
        """The entry's iteration, 0 for a baseline measured before the first; the values below are
        the entry's too."""
        return self.entry.iter

    @property
    def n(self) -> int:
        return self.entry.n

    @property
    def mean_objective(self) -> float:
        return self.entry.mean


class Ranked(Frozen):
    """One of our own configs in its place, as files and programs get it.

    Objectives are scores of which lower is better: the negative of a score that is to grow.
    """

    config_hash: str
    config: AnyConfig
    iter: NonNegativeInt
    """That first proposed it; 0 for the baseline."""
    changes: dict[str, Scalar]
    """Against the reference of that iteration."""
    reason: str
    action: str
    n: PositiveInt
    """Seeds measured."""
    seeds: tuple[int, ...]
    mean_objective: Finite
    objective: Finite
    objective_lo: Finite | None
    """95 % interval of the posterior; None while the noise is unknown."""
    objective_hi: Finite | None
    delta_vs_baseline: Finite | None
    """As believed; negative is better. None for the baseline itself and where it has no score."""
    delta_stderr: NonNegative | None
    """Its posterior sd; None while the noise is unknown, as are the interval's ends."""
    delta_lo: Finite | None
    delta_hi: Finite | None
    pairs: NonNegativeInt
    """Seeds that both were measured on."""
    beats_baseline: bool
    """The 99 % interval of the difference lies below zero."""
    train_s: NonNegative
    """Spent on it, all runs together."""
    params: int | None


def top(evidence: Evidence, k: int) -> list[Ranked]:
    """The ``k`` best configs by posterior mean, best first, of those that contend: what failed on a
    seed is not ranked, nor what trained exactly like another
    (:attr:`~trajectory.evidence.ConfigEvidence.contends`)."""
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
    """The population of all configs that contend but the baseline, or of a sample where they are
    very many."""
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
    """Every how many-th config the population is fitted to."""
    return max(1, configs // SAMPLE)


def rank(
    entries: Iterable[ConfigEvidence],
    k: int,
    *,
    noise: Noise | None,
    population: Population | None,
    baseline: ConfigEvidence | None,
) -> list[Ranked]:
    """The ``k`` best of our own configs, as :func:`standings` finds them."""
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
    """The ``k`` best of these configs by posterior mean, those without a measurement left out.

    Without a population, a config's mean stands for itself; without noise, there are no intervals.
    Whether seeds are known is the population's business.
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
    """All that could be among the k best: of configs measured on the same seeds, the posterior
    means are in the order of the means; but for the baseline, which is not shrunk."""
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
    """What a measured config scores; an infinite sd while the noise is unknown.

    The baseline's spread is its own here as in :func:`difference`, so that the two agree.
    """
    if population is not None:
        return population.baseline(entry) if entry is baseline else population.posterior(entry)
    if noise is not None:
        return Posterior(entry.mean, ((noise.sigma**2 / entry.n, noise.dof),))
    return Posterior(entry.mean, ((math.inf, 1),))


def difference(
    entry: Measured, baseline: Measured, noise: RunNoise | None, population: Population | None
) -> Posterior:
    """From the baseline, as believed; of plain means where there is no population."""
    if population is not None:
        return population.difference(entry, baseline)
    delta = entry.mean - baseline.mean
    if noise is None:
        return Posterior(delta, ((math.inf, 1),))
    return Posterior(delta, ((noise.sigma**2 * (1 / entry.n + 1 / baseline.n), noise.dof),))


def interval(posterior: Posterior, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval that holds its score so often; None where the noise is unknown."""
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
