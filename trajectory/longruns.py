"""Evaluate a campaign's long runs: standings, finalists, and a test of the ranking.

Only runs of the same length are compared. Their noise is estimated from the long runs themselves,
from configs with at least two seeds whose loss stayed low. A diverged run's score is not noise.

- ``sigma_run``: standard deviation of one run within a config, pooled; a mean of n runs has
  standard error ``sigma_run / sqrt(n)``.
- ``sigma_e``: standard deviation of the residual after the effects of each config and each seed
  (least squares, two-way without interaction). On k common seeds the difference of two configs
  has standard error ``sqrt(2) sigma_e / sqrt(k)``: the shared seed effects cancel.

The scores use seeds that no short run used, so a winner's mean is not the mean of its luckiest
runs. Choosing among finalists by these means is another selection, as is adding seeds only for the
configs that scored best on the first. With few finalists its effect is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import get_args

import numpy as np

from trainer.schema import AnyConfig, TrialFailed
from trajectory.ranking import Ranked
from trajectory.rows import Finalist, FinalistsRow, StressOutcome, StressRow, StressVerdict
from trajectory.statistics.fidelity import Fidelity, fidelity

SEVERITY: tuple[StressOutcome, ...] = get_args(StressOutcome)
"""Outcomes, mildest first."""
OUTCOME_STYLE: dict[StressOutcome, str] = {
    "survives": "green",
    "spikes": "yellow",
    "plateaus": "yellow",
    "grad_blowup": "red",
    "diverges": "red",
    "nonfinite": "red",
    "failed": "red",
}
STANDING: frozenset[StressOutcome] = frozenset({"survives", "spikes"})
"""Outcomes with which a config may still be launched. A spike from which it recovered is reported
but does not exclude it."""
_QUIET: frozenset[StressOutcome] = STANDING | {"plateaus"}
"""Outcomes of runs whose scores may estimate the noise."""


@dataclass(frozen=True, slots=True)
class LongRuns:
    """One config's long runs of one length."""

    config: AnyConfig
    config_hash: str
    rows: tuple[StressRow, ...]
    """One row per seed, ordered by seed."""

    @property
    def scores(self) -> dict[int, float]:
        """Seed to objective, for runs with a score."""
        pairs = ((row.trial.seed, row.trial.objective) for row in self.rows)
        return {seed: score for seed, score in pairs if score is not None}

    @property
    def mean_objective(self) -> float | None:
        """Mean over the runs with a score; None without any."""
        return fmean(self.scores.values()) if self.scores else None

    @property
    def verdict(self) -> StressVerdict:
        """The most severe verdict of its runs, the earliest if several are equal."""
        verdicts = (row.verdict for row in self.rows)
        return min(verdicts, key=lambda v: (-SEVERITY.index(v.outcome), v.step or 0))

    def on(self, seed: int) -> LongRuns | None:
        """Return the run on this seed alone, or None."""
        rows = tuple(row for row in self.rows if row.trial.seed == seed)
        return LongRuns(self.config, self.config_hash, rows) if rows else None

    def level(self, noise: LongNoise) -> float | None:
        """Return the mean score over its runs, each without its seed's effect; None without a
        score.

        It makes configs comparable that ran on different seeds.
        """
        if not self.scores:
            return None
        return fmean(y - noise.effects.get(seed, 0.0) for seed, y in self.scores.items())

    def long_score(self, noise: LongNoise) -> float | None:
        """Return the score for ranking, or None if it is unknown.

        It is infinite if a run became non-finite through the config's own fault. It is unknown if
        the only failures were for lack of memory or time and no run has a score; otherwise it is
        :meth:`level`.
        """
        for row in self.rows:
            if isinstance(row.trial.result, TrialFailed) and row.verdict.outcome != "failed":
                return math.inf
        return self.level(noise)


@dataclass(frozen=True, slots=True)
class LongNoise:
    """Noise of long runs; its estimates are None if no config had two of them."""

    sigma_run: float | None = None
    dof: int = 0
    sigma_e: float | None = None
    """Residual standard deviation; None if no two configs had two common seeds."""
    dof_e: int = 0
    effects: Mapping[int, float] = field(default_factory=dict)
    """Seed to its effect: how much higher its runs score than the same configs' runs on other
    seeds."""

    @classmethod
    def of(cls, runs: Iterable[LongRuns]) -> LongNoise:
        """Estimate the noise from all configs of one length."""
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
    """Return the long runs of this many steps, by config_hash.

    :param rows: newest first; if a seed was run twice, the newest run counts.
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
    """Return a config's mean and uncertainty, also relative to the baseline; None without a
    score."""
    mean = runs.mean_objective
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
        objective=mean,
        runs=n,
        stderr=None if noise.sigma_run is None else noise.sigma_run / math.sqrt(n),
        delta_vs_baseline=delta,
        delta_stderr=delta_stderr,
        pairs=pairs,
    )


def finalists(
    runs: Mapping[str, LongRuns], candidates: Iterable[str], count: int, baseline_hash: str | None
) -> tuple[Finalist, ...]:
    """Return the ``count`` best surviving candidates, by mean score without seed effects.

    Removing the seed effects avoids an advantage or penalty for a candidate that was run on other
    seeds in another session. A config counts whatever its purpose was: a spread config, or the
    baseline, that scores better than the candidates is the better choice.
    """
    noise = LongNoise.of(runs.values())
    baseline = runs.get(baseline_hash or "")
    entries = (runs[name] for name in candidates if name in runs)
    stand = [entry for entry in entries if entry.verdict.outcome in STANDING and entry.scores]
    stand.sort(key=lambda entry: entry.level(noise) or 0.0)
    best = (standing(entry, noise, baseline) for entry in stand[:count])
    return tuple(found for found in best if found is not None)


@dataclass(frozen=True, slots=True)
class Pair:
    """A config with a short and a long score."""

    rank: int
    """Its rank at the time of the long runs."""
    short: float
    """Posterior mean of its short runs."""
    long: float
    """See :meth:`LongRuns.long_score`."""


@dataclass(frozen=True, slots=True)
class RankingTest:
    """The search's ranking compared with long runs, over configs spread over it."""

    steps: int
    """Steps of a long run."""
    pairs: tuple[Pair, ...]
    """The configs compared."""
    left_out: int
    """Configs excluded because their long runs ran out of memory or time."""
    fidelity: Fidelity | None
    """Rank correlations; None for too few configs."""

    @property
    def n(self) -> int:
        """Number of configs compared."""
        return len(self.pairs)

    @property
    def nonfinite(self) -> int:
        """Configs among them whose long runs became non-finite; they rank last."""
        return sum(math.isinf(pair.long) for pair in self.pairs)


def ranking_test(
    ranked: Sequence[Ranked], rows: Sequence[StressRow], ended: Sequence[FinalistsRow]
) -> RankingTest | None:
    """Compare the current posterior means of short runs with the latest spread's long runs.

    :param rows: long runs, newest first.
    :param ended: finalists' rows, newest first.
    :returns: None if no stress test had a spread.
    """
    latest = next((row for row in ended if row.spread), None)
    if latest is None:
        return None
    runs = gather(rows, latest.steps)
    noise = LongNoise.of(runs.values())
    posteriors = {entry.config_hash: entry.objective for entry in ranked}
    pairs: list[Pair] = []
    for name in latest.spread:
        long = runs[name].long_score(noise) if name in runs else None
        if long is not None and name in posteriors:
            pairs.append(Pair(runs[name].rows[0].rank, posteriors[name], long))
    return RankingTest(
        steps=latest.steps,
        pairs=tuple(pairs),
        left_out=len(latest.spread) - len(pairs),
        fidelity=fidelity([pair.short for pair in pairs], [pair.long for pair in pairs]),
    )
