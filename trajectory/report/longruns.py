"""What the long runs showed of the configs that the short ones ranked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trajectory.longruns import LongNoise, LongRuns, RankingTest, gather, ranking_test, standing
from trajectory.report.progress import Standings
from trajectory.report.reading.curves import CurveReader, LearningCurve, merged
from trajectory.report.reading.ledger import Ledger
from trajectory.rows import Finalist, StressVerdict


@dataclass(frozen=True, slots=True)
class LongRun:
    """One config's long runs, of one length."""

    config_hash: str
    rank: int
    """In the ranking of the time."""
    purpose: str
    steps: int
    seeds: int
    standing: Finalist | None
    """Mean with its standard error, and against the baseline's; None without a score."""
    verdict: StressVerdict
    """The gravest of its runs'."""
    curve: LearningCurve | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A config with a short and a long score."""

    rank: int
    short_bpb: float
    """Posterior mean of its short runs."""
    long_bpb: float | None
    """Mean of its long runs; None where one of them lost its numbers."""


@dataclass(frozen=True, slots=True)
class LongRunFindings:
    """All of a campaign's."""

    runs: tuple[LongRun, ...]
    """The longest first, then in the order of the ranking."""
    test: RankingTest | None
    """None where no stress test had a spread."""
    pairs: tuple[Pair, ...]
    """What the test was computed from."""


def long_runs(ledger: Ledger, standings: Standings, read: CurveReader) -> LongRunFindings:
    """Of every config that had any."""
    newest_first = ledger.stress[::-1]
    found: list[LongRun] = []
    for steps in sorted({row.steps for row in newest_first}, reverse=True):
        group = gather(newest_first, steps)
        noise = LongNoise.of(group.values())
        baseline = group.get(ledger.evidence.baseline_hash or "")
        runs = (_long_run(own, standing(own, noise, baseline), read) for own in group.values())
        found += sorted(runs, key=lambda run: run.rank)
    ended = ledger.finalists[::-1]
    spread = next((row.spread for row in ended if row.spread), ())
    known = [name for name in spread if name in ledger.evidence.configs]
    test = ranking_test(standings.of_configs(known), newest_first, ended)
    steps = test.steps if test else 0
    pairs = _pairs(gather(newest_first, steps), known, standings)
    return LongRunFindings(tuple(found), test, tuple(pairs))


def _long_run(own: LongRuns, standing: Finalist | None, read: CurveReader) -> LongRun:
    first = own.rows[0]
    return LongRun(
        config_hash=own.config_hash,
        rank=first.rank,
        purpose=first.purpose,
        steps=first.steps,
        seeds=len(own.rows),
        standing=standing,
        verdict=own.verdict,
        curve=merged(own.config_hash, [read(row.trial.trial_id) for row in own.rows]),
    )


def _pairs(runs: dict[str, LongRuns], spread: Sequence[str], standings: Standings) -> list[Pair]:
    short = {entry.config_hash: entry.posterior_bpb for entry in standings.of_configs(spread)}
    pairs = []
    for name in spread:
        long = runs[name].long_score if name in runs else None
        if long is not None and name in short:
            known = None if math.isinf(long) else long
            pairs.append(Pair(runs[name].rows[0].rank, short[name], known))
    return pairs
