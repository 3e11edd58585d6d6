"""The best configs, by what they can be believed to score rather than by their luckiest run.

The best of many is lucky as well as good. So configs are ranked by their posterior mean: the mean
of their runs, each without its seed's effect, shrunk towards the population of sensible recipes by
as much as the noise of so many runs warrants (:mod:`trajectory.population`). What it promises, it
keeps on average. The interval is 95 %, Student's t.

The comparison with the baseline uses no prior: the mean difference over common seeds against
``sigma_d / sqrt(pairs)``; with no common seed, the difference of means against
``sigma sqrt(1/n + 1/n_baseline)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Self

from trainer.spec import Config, Finite, Frozen, NonNegative, NonNegativeInt, PositiveInt, Scalar
from trajectory.evidence import ConfigEvidence, Evidence, Tally
from trajectory.population import Population, Posterior

STRICT_Z = 2.0
SAMPLE = 2048
"""Configs, about, that a population is fitted to: its mean and sd are then known to 2 %."""
RACE_PRIOR_DOF = 4


@dataclass(frozen=True, slots=True)
class Noise:
    """What one run's number is worth."""

    sigma: float
    """Sd of one run within a config."""
    dof: int
    """Degrees of freedom behind it."""
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


class Ranked(Frozen):
    """One line of ``top``. Scores are val_bpb: lower is better."""

    config_hash: str
    config: Config
    iter: NonNegativeInt
    """That first proposed it; 0 for the baseline."""
    changes: dict[str, Scalar]
    """Against the reference of that iteration."""
    reason: str
    action: str
    n: PositiveInt
    """Seeds measured."""
    seeds: tuple[int, ...]
    mean_bpb: Finite
    posterior_bpb: Finite
    lo_bpb: Finite | None
    """95 % interval of the posterior; None while the noise is unknown."""
    hi_bpb: Finite | None
    delta_vs_baseline: Finite | None
    """Negative is better; None for the baseline itself, or where it was not measured."""
    delta_stderr: NonNegative | None
    pairs: NonNegativeInt
    """Common seeds behind the difference; 0 when it is one of plain means."""
    meets_strict_z: bool
    """``-delta_vs_baseline >= STRICT_Z * delta_stderr``, and better at all."""
    train_s: NonNegative
    """Spent on it, all runs together."""
    params: int | None


def top(evidence: Evidence, k: int) -> list[Ranked]:
    """The ``k`` best configs by posterior mean, best first. Failures are not ranked."""
    tally = evidence.tally
    noise = Noise.of(tally)
    entries = list(evidence.configs.values())
    sample = [entry for entry in entries[:: stride(len(entries))] if entry.n]
    population = Population.fit(sample, noise.sigma) if noise else None
    baseline = evidence.configs.get(tally.baseline_hash or "")
    return rank(entries, k, noise=noise, population=population, baseline=baseline)


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
    """The ``k`` best of these configs by posterior mean, those without a measurement left out.

    Without a population, a config's mean stands for itself; without noise, there are no intervals.
    """
    measured = [(entry, _posterior(entry, noise, population)) for entry in entries if entry.n]
    measured.sort(key=lambda pair: (pair[1].mean, pair[0].mean, pair[0].iter))
    return [_ranked(entry, posterior, noise, baseline) for entry, posterior in measured[:k]]


def _posterior(
    entry: ConfigEvidence, noise: Noise | None, population: Population | None
) -> Posterior:
    if population is not None:
        return population.posterior(entry)
    if noise is not None:
        return Posterior(entry.mean, noise.sigma / math.sqrt(entry.n), noise.dof)
    return Posterior(entry.mean, math.inf, 1)


@dataclass(frozen=True, slots=True)
class _Difference:
    delta: float
    stderr: float | None
    pairs: int


def _difference(
    entry: ConfigEvidence, baseline: ConfigEvidence, noise: Noise | None
) -> _Difference:
    common = entry.scores.keys() & baseline.scores.keys()
    if common:
        delta = fmean(entry.scores[seed] - baseline.scores[seed] for seed in sorted(common))
        stderr = noise.sigma_d / math.sqrt(len(common)) if noise else None
        return _Difference(delta, stderr, len(common))
    stderr = noise.sigma * math.sqrt(1 / entry.n + 1 / baseline.n) if noise else None
    return _Difference(entry.mean - baseline.mean, stderr, 0)


def _ranked(
    entry: ConfigEvidence,
    posterior: Posterior,
    noise: Noise | None,
    baseline: ConfigEvidence | None,
) -> Ranked:
    half_width = student_t(0.975, posterior.dof) * posterior.sd if noise else None
    versus = None
    if baseline is not None and baseline.n and baseline.config_hash != entry.config_hash:
        versus = _difference(entry, baseline, noise)
    return Ranked(
        config_hash=entry.config_hash,
        config=entry.config,
        iter=entry.iter,
        changes=entry.changes,
        reason=entry.reason,
        action=entry.action,
        n=entry.n,
        seeds=tuple(sorted(entry.scores)),
        mean_bpb=entry.mean,
        posterior_bpb=posterior.mean,
        lo_bpb=None if half_width is None else posterior.mean - half_width,
        hi_bpb=None if half_width is None else posterior.mean + half_width,
        delta_vs_baseline=versus.delta if versus else None,
        delta_stderr=versus.stderr if versus else None,
        pairs=versus.pairs if versus else 0,
        meets_strict_z=_is_strictly_better(versus),
        train_s=entry.train_s,
        params=entry.params,
    )


def _is_strictly_better(versus: _Difference | None) -> bool:
    if versus is None or versus.stderr is None:
        return False
    return versus.delta < 0 and -versus.delta >= STRICT_Z * versus.stderr


def student_t(p: float, dof: int) -> float:
    """The p-quantile, 0.5 < p < 1, of Student's t distribution.

    Exact for one and two degrees of freedom; above, found by halving between bounds on the exact
    distribution function for integer degrees (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    if dof > 1000:  # within 1e-3 of the normal
        return NormalDist().inv_cdf(p)
    low, high = 0.0, 1.0
    while _t_cdf(high, dof) < p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, dof) < p else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, dof: int) -> float:
    angle = math.atan(t / math.sqrt(dof))
    cosine_squared = math.cos(angle) ** 2
    odd = dof % 2
    term, series = 1.0, 1.0 if dof > 1 else 0.0
    for j in range(2 + odd, dof - 1, 2):
        term *= (j - 1) / j * cosine_squared
        series += term
    if odd:
        within = 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * series)
    else:
        within = math.sin(angle) * series
    return 0.5 + within / 2
