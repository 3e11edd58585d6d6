"""What became of each proposer's turns: the record that the next turns are given by.

It follows from the rows alone and grows with them, so that a campaign that is resumed, or whose
index is built anew, goes on as if it had never stopped.
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
"""Latest turns of which each is remembered by itself."""
UNUSABLE = "no reply"
"""Beside the rails' names: an exchange that failed before any rail was asked."""
KEPT, NOT_KEPT = "k", "."


class TrackRecord(Frozen):
    """One proposer's turns, and what came of them."""

    turns: NonNegativeInt = 0
    """Iterations that it was to propose for."""
    kept: NonNegativeInt = 0
    """Of these, those whose proposal was its own and was kept."""
    echoes: NonNegativeInt = 0
    """Turns in which it repeated the suggestion that it was shown. What becomes of one is no merit
    of its own."""
    stood_in: NonNegativeInt = 0
    """Turns that it came to nothing in, and another made the proposal."""
    replies: NonNegativeInt = 0
    """Exchanges with a language model."""
    refused: dict[str, int] = Field(default_factory=dict)
    """Replies of no use, by rail or as :data:`UNUSABLE`, in alphabetical order."""
    took_s: NonNegative = 0.0
    """Seconds of all its turns: until it had proposed, and of the trials of what it proposed."""
    latest: str = ""
    """The last :data:`REMEMBERED` turns, the oldest first: :data:`KEPT` or :data:`NOT_KEPT`."""

    def rate(self, turns: int) -> float:
        """The share of its latest turns, as many as there are, that were kept; 0 before any."""
        latest = self.latest[-turns:]
        return latest.count(KEPT) / len(latest) if latest else 0.0

    @property
    def turn_s(self) -> float:
        """Seconds of a turn, in the mean; 0 before any."""
        return self.took_s / self.turns if self.turns else 0.0

    def __str__(self) -> str:
        """``1 of 9 turns kept, 4 of 12 replies of no use``"""
        text = f"{self.kept} of {counted(self.turns, 'turn')} kept"
        if not self.replies:
            return text
        useless = sum(self.refused.values())
        return f"{text}, {useless} of {counted(self.replies, 'reply', 'replies')} of no use"

    def after(self, *, kept: bool, took_s: float = 0.0, **more: int) -> TrackRecord:
        """One turn later.

        :param took_s: seconds of the turn.
        :param more: what else is counted in it, by field.
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
        """With a turn's exchanges counted."""
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
    """The records, by kind of proposer, with one more iteration.

    Where one stood in for another both had a turn, a model's as long as its replies took, and a
    keep is the stand-in's. Where a model repeated what it was shown a keep is nobody's:
    rows do not say whose suggestion it was.
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
    """Whether a model repeated the suggestion that it was shown."""
    suggested = row.proposer.overrode
    return bool(suggested) and row.proposal is not None and row.proposal.changes == suggested
