"""Track the outcomes of each proposer's iterations, by which later iterations are allocated.

The record follows from the rows alone and grows with them. So it is the same after a campaign is
resumed or its index rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pydantic import Field

from autoresearch.values import Frozen, NonNegative, NonNegativeInt
from autoresearch.words import counted
from trajectory.proposals import ProposerRecord
from trajectory.rows import IterationRow

REMEMBERED = 64
"""Number of latest iterations whose outcomes are stored one by one."""
UNUSABLE = "no reply"
"""Counter beside the rails' names: exchanges that failed before any rail checked them."""
KEPT, NOT_KEPT = "k", "."


class TrackRecord(Frozen):
    """One proposer's iterations and their outcomes."""

    turns: NonNegativeInt = 0
    """Iterations assigned to it."""
    kept: NonNegativeInt = 0
    """Iterations in which its own proposal was used and kept."""
    echoes: NonNegativeInt = 0
    """Iterations in which it repeated the suggestion that it was shown; their outcomes are not
    credited to it."""
    stood_in: NonNegativeInt = 0
    """Iterations in which it failed and another proposer replaced it."""
    replies: NonNegativeInt = 0
    """Exchanges with a language model."""
    refused: dict[str, int] = Field(default_factory=dict)
    """Unusable replies, by rail or under :data:`UNUSABLE`, in alphabetical order."""
    took_s: NonNegative = 0.0
    """Seconds of all its iterations: for proposing, and for the trials of its proposals."""
    latest: str = ""
    """Outcomes of the last :data:`REMEMBERED` iterations, oldest first: :data:`KEPT` or
    :data:`NOT_KEPT`."""

    def rate(self, turns: int) -> float:
        """Return the share of its latest iterations, at most ``turns``, that were kept; 0 before
        any."""
        latest = self.latest[-turns:]
        return latest.count(KEPT) / len(latest) if latest else 0.0

    @property
    def turn_s(self) -> float:
        """Mean seconds of an iteration; 0 before any."""
        return self.took_s / self.turns if self.turns else 0.0

    def __str__(self) -> str:
        """``1 of 9 turns kept, 4 of 12 replies of no use``"""
        text = f"{self.kept} of {counted(self.turns, 'turn')} kept"
        if not self.replies:
            return text
        useless = sum(self.refused.values())
        return f"{text}, {useless} of {counted(self.replies, 'reply', 'replies')} of no use"

    def after(self, *, kept: bool, took_s: float = 0.0, **more: int) -> TrackRecord:
        """Return the record after one more iteration.

        :param took_s: seconds of the iteration.
        :param more: further counts to add, by field.
        """
        counts = {name: getattr(self, name) + count for name, count in more.items()}
        latest = (self.latest + (KEPT if kept else NOT_KEPT))[-REMEMBERED:]
        return self.model_copy(
            update={
                "turns": self.turns + 1,
                "kept": self.kept + kept,
                "took_s": self.took_s + took_s,
                "latest": latest,
                **counts,
            }
        )

    def with_replies(self, record: ProposerRecord) -> TrackRecord:
        """Return the record with an iteration's exchanges counted."""
        if not record.attempts:
            return self
        refused = Counter(self.refused)
        for attempt in record.attempts:
            if attempt.verdict is None:
                refused[UNUSABLE] += 1
            elif not attempt.verdict.allowed:
                refused[attempt.verdict.rail or UNUSABLE] += 1
        replies = self.replies + len(record.attempts)
        return self.model_copy(
            update={"replies": replies, "refused": dict(sorted(refused.items()))}
        )


def recorded(records: Mapping[str, TrackRecord], row: IterationRow) -> dict[str, TrackRecord]:
    """Return the records, by kind of proposer, after one more iteration.

    If one proposer replaced another, the iteration counts for both: for the model with the time of
    its replies, and for the replacement with its result. If a model repeated the suggestion it was
    shown, nobody is credited with a keep, because rows do not say who made the suggestion.
    """
    record, kept = row.proposer, row.decision.action == "keep"
    took_s = record.latency_s + sum(trial.wall_s for trial in row.trials)
    after = dict(records)

    def of(kind: str) -> TrackRecord:
        return after.get(kind, TrackRecord())

    if record.fallback is not None:
        in_vain_s = sum(attempt.latency_s for attempt in record.attempts)
        failed = of(record.failed_kind).after(kept=False, stood_in=1, took_s=in_vain_s)
        after[record.failed_kind] = failed.with_replies(record)
        rest_s = max(took_s - in_vain_s, 0.0)
        after[record.kind] = of(record.kind).after(kept=kept, took_s=rest_s)
    elif is_echo(row):
        own = of(record.kind).after(kept=False, echoes=1, took_s=took_s)
        after[record.kind] = own.with_replies(record)
    else:
        own = of(record.kind).after(kept=kept, took_s=took_s)
        after[record.kind] = own.with_replies(record)
    return dict(sorted(after.items()))


def is_echo(row: IterationRow) -> bool:
    """Return whether a model repeated the suggestion that it was shown."""
    suggested = row.proposer.overrode
    return bool(suggested) and row.proposal is not None and row.proposal.changes == suggested
