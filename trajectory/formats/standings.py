"""What another tool's runs add up to, config by config, and which configs are best.

No seed is known, so no two runs are a pair: the noise is pooled over configs that were run more
than once, and the posterior is that of :mod:`trajectory.statistics.population` without seeds. Where
nothing was run twice the noise is unknown, and a score stands for itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Self

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, PositiveInt
from trajectory.formats.foreign import ForeignRun, Plain
from trajectory.ranking import believed, difference, interval
from trajectory.statistics.population import Population, Posterior


@dataclass(slots=True)
class ForeignConfig:
    """One config of another tool and every run of it."""

    key: str
    """See :attr:`ForeignRun.config_key`."""
    name: str | None
    values: Mapping[str, Plain] | None
    iter: int
    """That first ran it; 0 for a baseline measured before."""
    is_baseline: bool = False
    changes: Mapping[str, Plain] = field(default_factory=dict)
    reason: str = ""
    action: str = "none"
    """The latest decision on it."""
    scores: dict[int, float] = field(default_factory=dict)
    """By the run's line in the source: a seed that no other run has."""
    failures: list[str] = field(default_factory=list)
    """Why it failed, each time."""

    @property
    def n(self) -> int:
        """Runs measured."""
        return len(self.scores)

    @property
    def mean(self) -> float:
        """Raises StatisticsError where nothing was measured."""
        return fmean(self.scores.values())


@dataclass(frozen=True, slots=True)
class RunNoise:
    """What one run's score is worth."""

    sigma: float
    """Pooled sd of one run within a config."""
    dof: int

    @classmethod
    def of(cls, configs: Iterable[ForeignConfig]) -> Self | None:
        """None where no config was run twice, or runs of one never differ."""
        replicated = [config for config in configs if config.n > 1]
        dof = sum(config.n - 1 for config in replicated)
        squares = math.fsum(
            (score - mean) ** 2
            for config in replicated
            for mean in (config.mean,)
            for score in config.scores.values()
        )
        return cls(math.sqrt(squares / dof), dof) if squares > 0 else None


class ForeignRanked(Frozen):
    """One line of ``top`` for another tool's campaign. Scores are in its measure."""

    config_key: str
    name: str | None
    values: dict[str, Plain] | None
    iter: NonNegativeInt
    is_baseline: bool
    changes: dict[str, Plain]
    reason: str
    action: str
    n: PositiveInt
    mean: Finite
    posterior: Finite
    lo: Finite | None
    """95 % interval of the posterior; None while the noise is unknown."""
    hi: Finite | None
    delta_vs_baseline: Finite | None
    """Negative is better; None for the baseline itself, or where none is known."""
    delta_stderr: NonNegative | None
    delta_lo: Finite | None
    delta_hi: Finite | None
    beats_baseline: bool
    """The 95 % interval of the difference lies below zero."""


@dataclass(frozen=True)
class Standings:
    """Every config of another tool's campaign, in the order first seen, and the noise."""

    configs: Mapping[str, ForeignConfig]
    noise: RunNoise | None

    @classmethod
    def of(cls, runs: Iterable[ForeignRun]) -> Self:
        configs: dict[str, ForeignConfig] = {}
        for run in runs:
            key = run.config_key
            if key is None or run.status not in {"measured", "failed"}:
                continue
            config = configs.setdefault(
                key, ForeignConfig(key, run.name, run.values, run.iter, changes=run.changes or {})
            )
            config.is_baseline |= run.is_baseline
            config.reason = config.reason or run.reason
            if run.action != "none":
                config.action = run.action
            if run.score is None:
                config.failures.append(run.why or "failed")
            else:
                config.scores[run.line] = run.score
        return cls(configs, RunNoise.of(configs.values()))

    @property
    def baseline(self) -> ForeignConfig | None:
        """The measured baseline, where the source names one."""
        return next((one for one in self.configs.values() if one.is_baseline and one.n), None)

    @cached_property
    def population(self) -> Population | None:
        """Of all measured configs but the baseline; None while the noise is unknown."""
        if self.noise is None:
            return None
        baseline = self.baseline
        others = [one for one in self.configs.values() if one.n and one is not baseline]
        return Population.fit(others, self.noise.sigma, seeds_known=False)

    def top(self, k: int) -> list[ForeignRanked]:
        """The ``k`` best by posterior mean, best first."""
        measured = [config for config in self.configs.values() if config.n]
        population = self.population
        ranked = [
            (config, believed(config, self.noise, population, self.baseline)) for config in measured
        ]
        ranked.sort(key=lambda pair: (pair[1].mean, pair[0].mean, pair[0].iter))
        return [self._ranked(config, posterior, population) for config, posterior in ranked[:k]]

    def _ranked(
        self, config: ForeignConfig, posterior: Posterior, population: Population | None
    ) -> ForeignRanked:
        baseline = self.baseline
        versus = None
        if baseline is not None and baseline is not config:
            versus = difference(config, baseline, self.noise, population)
        lo, hi = interval(posterior) or (None, None)
        delta_lo, delta_hi = (interval(versus) if versus else None) or (None, None)
        return ForeignRanked(
            config_key=config.key,
            name=config.name,
            values=dict(config.values) if config.values is not None else None,
            iter=config.iter,
            is_baseline=config.is_baseline,
            changes=dict(config.changes),
            reason=config.reason,
            action=config.action,
            n=config.n,
            mean=config.mean,
            posterior=posterior.mean,
            lo=lo,
            hi=hi,
            delta_vs_baseline=versus.mean if versus else None,
            delta_stderr=versus.sd if versus and delta_hi is not None else None,
            delta_lo=delta_lo,
            delta_hi=delta_hi,
            beats_baseline=delta_hi is not None and delta_hi < 0,
        )
