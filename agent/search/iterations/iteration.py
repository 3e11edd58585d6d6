"""Define an iteration in flight: its proposal, its race and the race's progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.search.iterations.pending import PendingIteration
from agent.search.race import Outcome, Race, TrialSchedule, Wanted
from trainer.spec import AnyConfig


@dataclass(slots=True, eq=False)
class Iteration:
    """An iteration in flight."""

    pending: PendingIteration
    schedule: TrialSchedule
    began: float
    """Start of its race in this session, by this process's clock."""
    outcome: Outcome | None = None
    """Set once its race is over."""
    then: tuple[Wanted, ...] = ()
    """Trials its race may request after the one that it waits for."""


def judged(race: Race, reference_now: Callable[[], AnyConfig]) -> TrialSchedule:
    """Return the trial schedule of a race whose reference others may replace.

    A discard is final. A candidate that beat a replaced reference is judged against the new one, on
    their common seeds and by the same rules, until it is discarded or has beaten the current
    reference.
    """
    outcome = yield from race.schedule()
    while outcome.decision.action == "keep":
        reference = reference_now()
        first = outcome.decision
        if reference.config_hash == first.reference_hash:
            break
        race = race.against(reference)
        outcome = yield from race.schedule()
        why = (
            f"{outcome.decision.explanation}; kept against {(first.reference_hash or '')[:12]} "
            f"before that was replaced ({first.explanation})"
        )
        decision = outcome.decision.model_copy(update={"explanation": why})
        outcome = Outcome(outcome.trials, decision)
    return outcome
