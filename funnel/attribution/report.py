"""What an attribution found: each change and its worth, as lines, as JSON and for the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from autoresearch.values import Frozen, PositiveInt, Scalar
from autoresearch.words import duration_text, scalar_text
from funnel.attribution.plan import AttributionPlan
from funnel.attribution.runs import Attribution, AttributionSpec, plan_worths
from funnel.attribution.worth import Estimate, Worths
from trainer.spec import BPB, Measure
from trajectory.rows import AttributionRow


class ChangeWorth(Frozen):
    """One change of the winner's, and what taking it back alone cost."""

    knob: str
    baseline: Scalar
    winner: Scalar
    worth: Estimate | None
    """Bits per byte; above zero it helps where all the others are. None: not measured."""
    why_not: str = ""
    """Why it was not measured."""


class AttributionResult(Frozen):
    """What each of the winner's changes was worth."""

    winner_hash: str
    steps: PositiveInt
    """Of a run."""
    seeds: tuple[int, ...]
    gain: Estimate | None
    changes: tuple[ChangeWorth, ...]
    """In the menu's order."""
    remainder: Estimate | None
    """The gain that no change has alone."""

    @classmethod
    def of(
        cls, plan: AttributionPlan, found: Worths, rows: Sequence[AttributionRow]
    ) -> AttributionResult:
        return cls(
            winner_hash=plan.winner.config_hash,
            steps=plan.steps,
            seeds=plan.seeds,
            gain=found.gain,
            changes=tuple(
                ChangeWorth(
                    knob=change.knob,
                    baseline=change.baseline,
                    winner=change.winner,
                    worth=worth,
                    why_not="" if worth else change.why_not or _failures(rows, change.config),
                )
                for change, worth in zip(plan.changes, found.changes, strict=True)
            ),
            remainder=found.remainder,
        )

    @property
    def harmful(self) -> tuple[str, ...]:
        """Knobs whose change makes the winner worse: all of the interval is below zero."""
        return tuple(c.knob for c in self.changes if c.worth is not None and c.worth.harms)


def result_of(work: Attribution) -> AttributionResult:
    """What the work has come to so far."""
    return AttributionResult.of(work.plan, plan_worths(work.plan, work.rows), work.rows)


def _failures(rows: Sequence[AttributionRow], config: Any) -> str:
    """In words, how the runs without a change ended that have no score."""
    ended = [
        getattr(row.trial.result, "status", "ok")
        for row in rows
        if row.config == config and row.trial.val_bpb is None
    ]
    if not ended:
        return "no run of it has ended yet"
    return f"without it {len(ended)} of its runs ended with no score ({', '.join(ended)})"


def announcement(work: Attribution, spec: AttributionSpec) -> Iterator[str]:
    """What is about to be run, and how long it should take."""
    plan, missing = work.plan, work.missing()
    runs = len(plan.configs) * len(plan.seeds)
    alone = sum(change.config is not None for change in plan.changes)
    yield (
        f"attribute {spec.long_run.budget} a run; the winner, the baseline and {alone} changes of "
        f"{len(plan.changes)} taken back alone; seeds {', '.join(map(str, plan.seeds))}"
    )
    known = f", {runs - len(missing)} of them in the journal" if len(missing) < runs else ""
    if not missing:
        yield f"          {runs} runs{known}; nothing is left to run"
        return
    left_s = len(missing) * spec.expected_s() / work.runner.places
    end = datetime.now() + timedelta(seconds=left_s)
    yield (
        f"          {runs} runs{known}; about {duration_text(left_s)} by the pace of the winner's "
        f"short runs, until {end:%a %H:%M}"
    )


def lines(result: AttributionResult, measure: Measure = BPB) -> Iterator[str]:
    """The table, and what it may be read as."""
    yield f"gain      {estimate_text(result.gain)} against the baseline"
    width = max(len(_change_text(change)) for change in result.changes)
    for change in result.changes:
        said = worth_words(change)
        yield f"          {_change_text(change):<{width}}  {said}"
    yield f"remainder {estimate_text(result.remainder)}: interactions, and what was not measured"
    yield (
        f"          {measure.unit} after {result.steps} steps, 95 % intervals over "
        f"{len(result.seeds)} seeds that chose nothing; above zero helps"
    )


def worth_words(change: ChangeWorth) -> str:
    """An estimate and what it says."""
    if change.worth is None:
        return f"not measured: {change.why_not}"
    if change.worth.is_exact:
        return "0: it trains alike to the last bit"
    verdict = (
        "helps" if change.worth.helps else "harms" if change.worth.harms else "not told from zero"
    )
    return f"{estimate_text(change.worth)}: {verdict}"


def estimate_text(estimate: Estimate | None) -> str:
    """``+0.0123 (+0.0041 … +0.0205)``"""
    if estimate is None:
        return "not measured"
    if estimate.is_exact:
        return "0, exactly"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:+.4f} (one seed: no interval)"
    return f"{estimate.value:+.4f} ({estimate.low:+.4f} … {estimate.high:+.4f})"


def _change_text(change: ChangeWorth) -> str:
    return f"{change.knob} {scalar_text(change.baseline)} → {scalar_text(change.winner)}"
