"""Track the outcomes of each proposer's iterations, and what the rails refused.

Later iterations are allocated by them.

The record follows from the rows alone and grows with them. So it is the same after a campaign is
resumed or its index rebuilt.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoresearch.words import counted
from trajectory.proposals import Attempt, ModelIdea
from trajectory.rows import IterationRow

UNUSABLE = "no reply"
"""Counter beside the rails' names: exchanges that failed before any rail checked them."""
CODE, NUMBERS = "code", "numbers"
"""The two kinds of turns in a campaign with code knobs."""
SEARCH = "search"
"""The arm of the sampler's own draws, beside those of a language model
(:data:`trajectory.proposals.Arm`)."""
MOST = 2.0
"""Largest absolute credit of one turn. A failed config gets the negative of it."""
UNUSABLE_CREDIT = -0.5
"""Credit of a turn without a usable reply: it cost time, but the sampler's proposal was used."""
KEEPS = 0.95
"""Share of a turn's weight that is left after another turn of the same arm. The surrogate knows
more and more, so old turns say less about the next one."""
PRIOR_WEIGHT = 1.0
"""Weight of the prior mean, in turns."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Sum up one arm's turns, compared with a pick by chance from the same slate.

    The credit of a turn is the slate's mean prediction minus the measured difference, in standard
    deviations of the result of a pick by chance. So 0 is chance and above 0 is better, if the
    surrogate is right; its error is common to all arms, so arms are compared with each other.
    """

    iterations: int = 0
    weight: float = 0.0
    total: float = 0.0

    def after(self, credit: float) -> Credit:
        """Return the record after one more turn."""
        return Credit(self.iterations + 1, KEEPS * self.weight + 1, KEEPS * self.total + credit)

    def posterior(self, prior: float = 0.0) -> tuple[float, float]:
        """Return mean and standard deviation of the arm's mean credit, whose turns have a standard
        deviation of 1.

        :param prior: mean before any turn.
        """
        weight = self.weight + PRIOR_WEIGHT
        return (self.total + PRIOR_WEIGHT * prior) / weight, 1 / math.sqrt(weight)

    def advantage(self, other: Credit) -> tuple[float, float]:
        """Return mean and standard deviation of the difference between two arms' mean credits."""
        (mean, sd), (other_mean, other_sd) = self.posterior(), other.posterior()
        return mean - other_mean, math.hypot(sd, other_sd)


def credit_text(credits: Mapping[str, Credit]) -> str:
    """Return ``pick +0.4 (-0.2 … +1.0) after 12 turns``: the advantage of each of a language
    model's arms over the search, with its 95 % interval; empty before any turn of a model."""
    search = credits.get(SEARCH, Credit())
    parts = []
    for arm, credit in credits.items():
        if arm != SEARCH:
            mean, sd = credit.advantage(search)
            span = f"{mean - 1.96 * sd:+.1f} … {mean + 1.96 * sd:+.1f}"
            parts.append(f"{arm} {mean:+.1f} ({span}) after {counted(credit.iterations, 'turn')}")
    return " · ".join(parts)


def credited(credits: Mapping[str, Credit], row: IterationRow) -> dict[str, Credit]:
    """Return the credit of each arm after one more iteration."""
    record, after = row.proposer, dict(credits)

    def credit(arm: str, amount: float) -> None:
        after[arm] = after.get(arm, Credit()).after(amount)

    failed = record.fallback is not None and record.arm != CODE
    if failed and any(each.verdict for each in record.attempts):
        credit("pick", UNUSABLE_CREDIT)
    if record.prediction is not None and row.trials:
        predicted, decision, amount = record.prediction, row.decision, -MOST
        if decision.delta is not None:
            spread = math.hypot(predicted.slate_sd, decision.stderr or 0.0)
            better = predicted.slate_delta - decision.delta
            amount = min(max(better / spread if spread else 0.0, -MOST), MOST)
        credit(record.arm or SEARCH, amount)
    return dict(sorted(after.items()))


def earned(earnings: Mapping[str, Credit], row: IterationRow) -> dict[str, Credit]:
    """Return what turns for code and for numbers have earned after one more iteration: the gain of
    a kept change, in standard errors, and nothing for any other turn.

    Nothing is counted before the first turn for code.
    """
    kind = CODE if row.proposer.arm == CODE else NUMBERS
    if kind == NUMBERS and CODE not in earnings:
        return dict(earnings)
    kept = row.decision.action == "keep"
    gain = min(max(row.decision.z or 0.0, 0.0), MOST) if kept else 0.0
    return {**earnings, kind: earnings.get(kind, Credit()).after(gain)}


@dataclass(slots=True)
class TrackRecord:
    """One proposer's iterations and their outcomes."""

    assigned: int = 0
    """Iterations assigned to it."""
    kept: int = 0
    """Iterations in which its own proposal was used and kept."""
    echoes: int = 0
    """Iterations in which it repeated the suggestion that it was shown; their outcomes are not
    credited to it."""
    stood_in: int = 0
    """Iterations in which it failed and another proposer replaced it."""
    replies: int = 0
    """Exchanges with a language model."""
    refused: dict[str, int] = field(default_factory=dict)
    """Unusable replies, by rail or under :data:`UNUSABLE`."""
    usd: float = 0.0
    """Money that its replies cost, as far as it was reported."""

    def __str__(self) -> str:
        """``1 of 9 iterations kept, 4 of 12 replies of no use``"""
        text = f"{self.kept} of {counted(self.assigned, 'iteration')} kept"
        if not self.replies:
            return text
        useless = sum(self.refused.values())
        text += f", {useless} of {counted(self.replies, 'reply', 'replies')} of no use"
        return f"{text}, ${self.usd:.2f}" if self.usd else text

    def add(
        self,
        attempts: Sequence[Attempt] = (),
        *,
        kept: bool = False,
        echoed: bool = False,
        stood_in: bool = False,
    ) -> None:
        """Add one more iteration.

        :param attempts: its exchanges with a language model.
        """
        self.assigned += 1
        self.kept += kept
        self.echoes += echoed
        self.stood_in += stood_in
        self.replies += len(attempts)
        for attempt in attempts:
            self.usd += attempt.cost_usd or 0.0
            if attempt.verdict is None or not attempt.verdict.allowed:
                rail = (attempt.verdict and attempt.verdict.rail) or UNUSABLE
                self.refused[rail] = self.refused.get(rail, 0) + 1


def add_iteration(records: defaultdict[str, TrackRecord], row: IterationRow) -> None:
    """Add one more iteration to the records, by kind of proposer.

    If one proposer replaced another, the iteration counts for both: for the model as one that it
    did not win, and for the replacement with its result. If a model repeated the suggestion it was
    shown, nobody is credited with a keep, because rows do not say who made the suggestion.
    """
    proposer, kept = row.proposer, row.decision.action == "keep"
    if proposer.fallback is not None:
        records[proposer.failed_kind].add(proposer.attempts, stood_in=True)
        records[proposer.kind].add(kept=kept)
    elif is_echo(row):
        records[proposer.kind].add(proposer.attempts, echoed=True)
    else:
        records[proposer.kind].add(proposer.attempts, kept=kept)


def is_echo(row: IterationRow) -> bool:
    """Return whether a model repeated the suggestion that it was shown, unasked. Picking it from a
    slate is a choice."""
    suggested = row.proposer.overrode
    is_same = row.proposal is not None and row.proposal.changes == suggested
    return bool(suggested) and is_same and row.proposer.arm is None


IDEAS = 40
"""Most ideas to remember."""
REFUSED_CODE = 12
"""Most refused sources to remember."""
CODE_RAILS = frozenset({"code", "code_run"})


@dataclass(frozen=True, slots=True)
class RefusedCode:
    """A source that a proposer wrote for a code knob, and why a rail refused it."""

    said: str
    """Source of the function, or a language model's whole reply."""
    why: str


def refused_code(row: IterationRow) -> Iterator[RefusedCode]:
    """Yield the replies of a language model, or else the source, that a rail for code refused."""
    for attempt in row.proposer.attempts:
        if attempt.verdict is not None and attempt.verdict.rail in CODE_RAILS:
            yield RefusedCode(said=attempt.raw, why=attempt.verdict.why)
    if row.verdict.rail in CODE_RAILS and row.proposal and not _is_last_attempt(row):
        for name, source in row.proposal.changes.items():
            if name.startswith("code."):
                yield RefusedCode(said=str(source), why=row.verdict.why)


def ideas_of(row: IterationRow) -> list[ModelIdea]:
    """Return what a language model proposed besides its choice."""
    reason, model = row.proposal.reason if row.proposal else "", row.proposer.model or ""
    return [ModelIdea(changes=one, reason=reason, model=model) for one in row.proposer.ideas]


def refusals_of(row: IterationRow) -> list[str]:
    """Return the rails that refused the proposal and a language model's attempts."""
    verdicts = [attempt.verdict for attempt in row.proposer.attempts]
    if not _is_last_attempt(row):
        verdicts.append(row.verdict)
    return [verdict.rail for verdict in verdicts if verdict and verdict.rail]


def _is_last_attempt(row: IterationRow) -> bool:
    """Return whether the row's refusal repeats that of the last attempt."""
    attempts = row.proposer.attempts
    return bool(attempts) and not row.proposer.fallback and attempts[-1].verdict == row.verdict
