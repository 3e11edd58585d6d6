"""An iteration in flight: its race, and how far that is."""

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
    """Its race in this sitting, by this process's clock."""
    outcome: Outcome | None = None
    """Once its race is over."""
    then: tuple[Wanted, ...] = ()
    """What its race may want after the trial that it waits for."""


def judged(race: Race, reference_now: Callable[[], AnyConfig]) -> TrialSchedule:
    """The course of a race while others may replace its reference.

    A discard stands. A candidate that beat a reference which has been replaced meanwhile is judged
    against the new one, on their common seeds and by what that takes, until it is discarded or has
    beaten the one that stands.
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
