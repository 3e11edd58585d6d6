"""What the long runs of a campaign add up to: standings, finalists, and a test of the ranking.

Only runs of the same length are compared. Their noise is their own, estimated from configs with two
seeds or more whose loss stayed down (a diverged run's number is no noise):

- ``sigma_run``: sd of one run within a config, pooled; a mean of n runs has standard error
  ``sigma_run / sqrt(n)``.
- ``sigma_e``: sd of what is left when each config's and each seed's effect is taken out (least
  squares, two-way without interaction). On k common seeds the difference of two configs has
  standard error ``sqrt(2) sigma_e / sqrt(k)``: what the seeds share cancels.

The scores are of seeds that no short run used, so the mean of a winner of the night is not the mean
of its luckiest runs. Choosing among finalists by these means is a choice again: small, among a few;
and so is giving further seeds to the best of the first one alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import get_args

import numpy as np

from trainer.spec import AnyConfig, TrialFailed
from trajectory.ranking import Ranked
from trajectory.rows import Finalist, FinalistsRow, StressOutcome, StressRow, StressVerdict
from trajectory.statistics.fidelity import Fidelity, fidelity

SEVERITY: tuple[StressOutcome, ...] = get_args(StressOutcome)
"""The mildest first."""
STANDING: frozenset[StressOutcome] = frozenset({"survives", "spikes"})
"""What a config may show and still be launched: a spike it recovered from is told, not held
against it."""
_QUIET: frozenset[StressOutcome] = STANDING | {"plateaus"}
"""Runs whose numbers tell of noise."""


@dataclass(frozen=True, slots=True)
class LongRuns:
    """One config's long runs of one length."""

    config: AnyConfig
    config_hash: str
    rows: tuple[StressRow, ...]
    """One a seed, by seed."""

    @property
    def scores(self) -> dict[int, float]:
        """Seed to val_bpb, where there is one."""
        pairs = ((row.trial.seed, row.trial.val_bpb) for row in self.rows)
        return {seed: score for seed, score in pairs if score is not None}

    @property
    def mean_bpb(self) -> float | None:
        """Over the runs with a score."""
        return fmean(self.scores.values()) if self.scores else None

    @property
    def verdict(self) -> StressVerdict:
        """The worst of its runs', the earliest of the worst."""
        verdicts = (row.verdict for row in self.rows)
        return min(verdicts, key=lambda v: (-SEVERITY.index(v.outcome), v.step or 0))

    def on(self, seed: int) -> LongRuns | None:
        """The run on this seed alone; None where it has none."""
        rows = tuple(row for row in self.rows if row.trial.seed == seed)
        return LongRuns(self.config, self.config_hash, rows) if rows else None

    def level(self, noise: LongNoise) -> float | None:
        """What it is put in its place by among configs of other seeds: the mean over its runs with
        a score, each without its seed's effect."""
        if not self.scores:
            return None
        return fmean(y - noise.effects.get(seed, 0.0) for seed, y in self.scores.items())

    def long_score(self, noise: LongNoise) -> float | None:
        """For ranking: infinite where a run lost its numbers, by its own fault; None where nothing
        is known, since it ended for want of memory or time; else its level."""
        for row in self.rows:
            if isinstance(row.trial.result, TrialFailed) and row.verdict.outcome != "failed":
                return math.inf
        return self.level(noise)


@dataclass(frozen=True, slots=True)
class LongNoise:
    """How far long runs can be trusted; None where no config had two."""

    sigma_run: float | None = None
    dof: int = 0
    sigma_e: float | None = None
    """None where no two configs had two common seeds."""
    dof_e: int = 0
    effects: Mapping[int, float] = field(default_factory=dict)
    """By how much a seed's runs score above those of the other seeds of the same configs; none of
    a seed that no config shares with another."""

    @classmethod
    def of(cls, runs: Iterable[LongRuns]) -> LongNoise:
        """From all configs of one length."""
        quiet = [r.scores for r in runs if r.verdict.outcome in _QUIET and len(r.scores) > 1]
        scores = [(c, seed, y) for c, own in enumerate(quiet) for seed, y in own.items()]
        if not scores:
            return cls()
        dof = len(scores) - len(quiet)
        sum_of_squares = math.fsum(
            (y - fmean(own.values())) ** 2 for own in quiet for y in own.values()
        )
        sigma_run = math.sqrt(sum_of_squares / dof)
        seeds = sorted({seed for _, seed, _ in scores})
        design = np.zeros((len(scores), len(quiet) + len(seeds)))
        for line, (c, seed, _) in enumerate(scores):
            design[line, c] = design[line, len(quiet) + seeds.index(seed)] = 1.0
        y = np.array([score for _, _, score in scores])
        fitted, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
        of_seeds = fitted[len(quiet) :] - fitted[len(quiet) :].mean()
        effects = dict(zip(seeds, of_seeds.tolist(), strict=True))
        dof_e = len(scores) - int(rank)
        if dof_e == 0:
            return cls(sigma_run, dof, effects=effects)
        residual = y - design @ fitted
        sigma_e = math.sqrt(float(residual @ residual) / dof_e)
        return cls(sigma_run, dof, sigma_e, dof_e, effects)


def gather(rows: Sequence[StressRow], steps: int) -> dict[str, LongRuns]:
    """The long runs of this many steps by config_hash.

    :param rows: the newest first; of a seed run twice the newest counts.
    """
    latest: dict[str, dict[int, StressRow]] = {}
    for row in rows:
        if row.steps == steps:
            latest.setdefault(row.config_hash, {}).setdefault(row.trial.seed, row)
    return {
        name: LongRuns(
            next(iter(by_seed.values())).config,
            name,
            tuple(by_seed[seed] for seed in sorted(by_seed)),
        )
        for name, by_seed in latest.items()
    }


def standing(runs: LongRuns, noise: LongNoise, baseline: LongRuns | None) -> Finalist | None:
    """A config's mean with its uncertainty, and against the baseline's; None without a score."""
    mean = runs.mean_bpb
    if mean is None:
        return None
    n = len(runs.scores)
    delta = delta_stderr = None
    pairs = 0
    if baseline is not None and baseline.config_hash != runs.config_hash:
        common = sorted(runs.scores.keys() & baseline.scores.keys())
        pairs = len(common)
        if common:
            delta = fmean(runs.scores[seed] - baseline.scores[seed] for seed in common)
            if noise.sigma_e is not None:
                delta_stderr = math.sqrt(2 / pairs) * noise.sigma_e
    return Finalist(
        config_hash=runs.config_hash,
        val_bpb=mean,
        runs=n,
        stderr=None if noise.sigma_run is None else noise.sigma_run / math.sqrt(n),
        delta_vs_baseline=delta,
        delta_stderr=delta_stderr,
        pairs=pairs,
    )


def finalists(
    runs: Mapping[str, LongRuns], entrants: Iterable[str], count: int, baseline_hash: str | None
) -> tuple[Finalist, ...]:
    """The ``count`` best of the entrants still standing, by mean, each run without its seed's
    effect: one that has other seeds than the rest, from another night, is not put behind or before
    them for what these do.

    Whatever they were run for: a config of the spread, or the baseline, that does better than the
    candidates is the better choice.
    """
    noise = LongNoise.of(runs.values())
    baseline = runs.get(baseline_hash or "")
    entries = (runs[name] for name in entrants if name in runs)
    stand = [entry for entry in entries if entry.verdict.outcome in STANDING and entry.scores]
    stand.sort(key=lambda entry: entry.level(noise) or 0.0)
    best = (standing(entry, noise, baseline) for entry in stand[:count])
    return tuple(found for found in best if found is not None)


@dataclass(frozen=True, slots=True)
class RankingTest:
    """The night's ranking against long runs, over configs spread over it."""

    steps: int
    """Steps of a long run."""
    n: int
    """Configs compared."""
    nonfinite: int
    """Configs among those ranked behind all others: their long runs lost their numbers."""
    left_out: int
    """Configs whose long runs ended for want of memory or time."""
    fidelity: Fidelity | None
    """None where there are too few configs."""


def ranking_test(
    ranked: Sequence[Ranked], rows: Sequence[StressRow], ended: Sequence[FinalistsRow]
) -> RankingTest | None:
    """Posterior means of short runs, as they are now, against the latest spread's long runs.

    :param rows: and ``ended``: the newest first.

    None where no stress test had a spread.
    """
    latest = next((row for row in ended if row.spread), None)
    if latest is None:
        return None
    runs = gather(rows, latest.steps)
    noise = LongNoise.of(runs.values())
    posteriors = {entry.config_hash: entry.objective for entry in ranked}
    pairs: list[tuple[float, float]] = []
    left_out = 0
    for name in latest.spread:
        long = runs[name].long_score(noise) if name in runs else None
        if long is None or name not in posteriors:
            left_out += 1
        else:
            pairs.append((posteriors[name], long))
    return RankingTest(
        steps=latest.steps,
        n=len(pairs),
        nonfinite=sum(math.isinf(long) for _, long in pairs),
        left_out=left_out,
        fidelity=fidelity([short for short, _ in pairs], [long for _, long in pairs]),
    )
