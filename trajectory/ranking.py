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

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pydantic import computed_field

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, PositiveInt, Scalar
from autoresearch.words import counted, duration_text, millions_text, rate_text
from trainer.schema import AnyConfig
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.statistics.intervals import RunNoise
from trajectory.statistics.population import Population
from trajectory.statistics.standings import Estimates

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
    def of(cls, evidence: Evidence) -> Self | None:
        """Return a campaign's noise; None before any config was replicated."""
        sigma = evidence.sigma
        if sigma is None:
            return None
        sum_of_squares = RACE_PRIOR_DOF * 2 * sigma**2 + evidence.races_ss
        return cls(
            sigma,
            evidence.within_dof,
            math.sqrt(sum_of_squares / (RACE_PRIOR_DOF + evidence.races_dof)),
        )

    @property
    def shared(self) -> float:
        """Share of a run's variance that its seed explains, in 0 … 1: the correlation of two
        configs on one seed. It is zero until races differ less than unpaired runs would."""
        if not self.sigma:
            return 0.0
        return max(0.0, 1 - self.sigma_d**2 / (2 * self.sigma**2))

    def stderr(self, pairs: int, reference_runs: int) -> float:
        """Return the standard error of a candidate's difference from a reference with so many runs,
        on so many of its seeds (:mod:`agent.judge`)."""
        runs = max(pairs, reference_runs)
        return self.sigma_d * math.sqrt(((1 + self.shared) / pairs + (1 - self.shared) / runs) / 2)


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
    delta_vs_next: Finite | None = None
    """Posterior mean of the difference from the next in the ranking; None for the last."""
    half_vs_next: NonNegative | None = None
    """Half of its 95 % interval; None while the noise is unknown."""
    train_s: NonNegative
    """Seconds of training, over all its runs."""
    params: int | None
    peak_gib: NonNegative | None
    """Most memory that one of its runs held."""
    step_ms: NonNegative | None
    """Time of a step in its fastest run; None for a command."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def footprint(self) -> str:
        """Its size and cost, such as ``2.10 M parameters, 0.55 GiB, 62 ms a step``."""
        parts = []
        if self.params is not None:
            parts.append(f"{millions_text(self.params)} parameters")
        if self.peak_gib is not None:
            parts.append(f"{self.peak_gib:.2g} GiB")
        if self.step_ms is not None:
            parts.append(f"{rate_text(self.step_ms)} ms a step")
        else:
            parts.append(f"{duration_text(self.train_s / self.n)} a run")
        return ", ".join(parts)


_ESTIMATES = (
    *("iter", "n", "mean_objective", "objective", "objective_lo", "objective_hi"),
    *("delta_vs_baseline", "delta_stderr", "delta_lo", "delta_hi", "pairs", "beats_baseline"),
    *("delta_vs_next", "half_vs_next"),
)
"""Fields of a ranked config that its standing has under the same names."""


@dataclass(frozen=True)
class Posteriors(Estimates[ConfigEvidence]):
    """Posteriors of a campaign's configs, from its evidence."""

    noise: Noise | None
    evidence: Evidence

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Fit the population of all configs that may be ranked, without the baseline; if there are
        very many, to a sample of them."""
        noise = Noise.of(evidence)
        baseline = evidence.configs.get(evidence.baseline_hash or "")
        if baseline is not None and not baseline.n:
            baseline = None
        if noise is None:
            return cls(evidence.configs, baseline, None, None, evidence)
        entries = list(evidence.configs.values())
        sample = [
            entry
            for entry in entries[:: max(1, len(entries) // SAMPLE)]
            if entry.contends and entry.config_hash != evidence.baseline_hash
        ]
        population = Population.fit(sample, noise.sigma)
        return cls(evidence.configs, baseline, noise, population, evidence)

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest possible objective, as the menu says."""
        return self.evidence.limits

    def best(self, k: int) -> list[Ranked]:
        """Return the ``k`` best configs by posterior mean, best first.

        Configs that failed on a seed, or trained exactly like another, are not ranked
        (:attr:`~trajectory.evidence.ConfigEvidence.contends`).
        """
        return self.of_configs([entry.config_hash for entry in self.evidence.contenders()], k)

    def objectives(self, hashes: Iterable[str]) -> dict[str, float]:
        """Return the posterior means of the measured ones of these configs."""
        known = ((name, self.configs[name]) for name in hashes if name in self.configs)
        return {name: self.believed(entry).mean for name, entry in known if entry.n}

    def of_configs(self, hashes: Iterable[str], k: int | None = None) -> list[Ranked]:
        """Return the measured ones of these configs, best first."""
        entries = [self.configs[name] for name in hashes if name in self.configs]
        return [
            Ranked(
                config_hash=one.entry.config_hash,
                config=one.entry.config,
                changes=one.entry.changes,
                reason=one.entry.reason,
                action=one.entry.action,
                seeds=tuple(sorted(one.entry.scores)),
                train_s=one.entry.train_s,
                params=one.entry.params,
                peak_gib=one.entry.peak_gib,
                step_ms=one.entry.step_ms,
                **{name: getattr(one, name) for name in _ESTIMATES},
            )
            for one in self.standings(entries, len(entries) if k is None else k)
        ]


def top(evidence: Evidence, k: int) -> list[Ranked]:
    """Return the ``k`` best configs, as :meth:`Posteriors.best` does."""
    return Posteriors.of(evidence).best(k)


def ranked_config(evidence: Evidence, config_hash: str | None) -> Ranked | None:
    """Return a config as :func:`top` would list it; None if it was not measured."""
    return next(iter(Posteriors.of(evidence).of_configs([config_hash or ""])), None)


@dataclass(frozen=True, slots=True)
class Unranked:
    """Number of measured configs that are not ranked, by reason."""

    failed: int
    """Configs that failed on one of their seeds."""
    pruned: int
    """Configs whose trial on one of their seeds was stopped early, far behind the reference."""
    same: int
    """Configs that trained exactly like another."""

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count the unranked configs of a whole campaign."""
        left = [
            entry
            for entry in evidence.configs.values()
            if entry.n and not entry.contends and entry.config_hash != evidence.baseline_hash
        ]
        failed = [entry for entry in left if entry.failures]
        pruned = sum(all(one.status == "pruned" for one in entry.failures) for entry in failed)
        return cls(len(failed) - pruned, pruned, len(left) - len(failed))

    def __str__(self) -> str:
        """Return one line, empty if every config is ranked."""
        clauses = []
        if self.failed:
            clauses.append(f"{counted(self.failed, 'config')} that failed on one of the seeds")
        if self.pruned:
            clauses.append(f"{counted(self.pruned, 'config')} pruned on one of the seeds")
        if self.same:
            clauses.append(f"{counted(self.same, 'config')} that trained exactly like another")
        return f"not ranked: {' and '.join(clauses)}" if clauses else ""
