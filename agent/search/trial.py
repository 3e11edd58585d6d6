"""The hooks and watchers that follow a trial, and trials that a stop orphaned.

Each method of a watcher does nothing by default.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from agent.judge import Assessment
from autoresearch.layout import trial_number
from trainer.executors.base import Finished
from trainer.isolation.outcome import finished_trial
from trainer.schema import CurvePoint, Measured, Place, TrialFailed, TrialSpec
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord


class TrialWatcher:
    """Follows running trials."""

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        """Report that a trial starts, rather than that an earlier result is reused."""

    def trial_placed(self, trial_id: str, place: Place) -> None:
        """Report where a trial runs, if it waited for a lane or several lanes are busy."""

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        """Report a new point of a trial's curve."""

    def trial_ended(self, record: TrialRecord) -> None:
        """Report that a trial has ended, or that an earlier result is reused."""


class Watcher(TrialWatcher):
    """Follows the loop."""

    def note(self, text: str) -> None:
        """Report something to the user."""

    def baseline_measured(self, row: BaselineRow) -> None:
        """Report that the baseline has a row on one more seed."""

    def proposing(self, iteration: int) -> None:
        """Report that a proposal is asked for while nothing runs."""

    def assessed(self, assessment: Assessment) -> None:
        """Report an interim analysis, or the decision, of a race."""

    def iteration_ended(self, row: IterationRow) -> None:
        """Report that an iteration has its row."""


class Watchers(Watcher):
    """Pass every event on to several watchers, in order."""

    def __init__(self, *watchers: TrialWatcher) -> None:
        self._watchers = watchers
        for name in dir(Watcher):
            if not name.startswith("_"):
                setattr(self, name, partial(self._pass_on, name))

    def _pass_on(self, event: str, *content: object) -> None:
        for watcher in self._watchers:
            getattr(watcher, event)(*content)


EndHook: TypeAlias = Callable[[Finished], Finished]
"""Takes how a trial ended and returns the record of it."""
StartHook: TypeAlias = Callable[[Path], EndHook]
"""Is called right before a trial starts, with its directory."""


def left_s(spec: TrialSpec, point: CurvePoint) -> float | None:
    """Return the expected seconds that a trial trains after a point of its curve; None if its
    budget does not tell."""
    if spec.steps is not None and point.step:
        return max(0.0, point.elapsed_s / point.step * (spec.steps - point.step))
    if spec.budget.unit == "seconds":
        return max(0.0, spec.budget.amount - point.elapsed_s)
    return None


@dataclass(slots=True)
class OrphanedTrials:
    """Trials with a directory that no row names.

    A finished one is resumed where its spec is asked for. The others are reported as interrupted,
    and so is a finished one that nothing will ask for any more.
    """

    finished: dict[TrialSpec, tuple[str, Measured | TrialFailed]] = field(default_factory=dict)
    """Id and result of each orphaned trial, by its spec without the id."""
    unfinished: list[str] = field(default_factory=list)

    def give_up(self, those: Callable[[TrialSpec], bool]) -> list[str]:
        """Forget the finished trials of some kind, and return their ids for a row to name."""
        given_up = [spec for spec in self.finished if those(spec)]
        return [self.finished.pop(spec)[0] for spec in given_up]


def read_orphaned_trials(directory: Path, unnamed: Collection[str]) -> OrphanedTrials:
    """Return the orphaned trials of a campaign.

    :param directory: the campaign's ``trials`` folder.
    :param unnamed: ids of the trials there that no row names.
    """
    orphaned = OrphanedTrials()
    for name in sorted(unnamed, key=trial_number):
        finished = finished_trial(directory / name)
        if finished is None:
            orphaned.unfinished.append(name)
            continue
        spec, result = finished
        without_id = spec.model_copy(update={"trial_id": ""})
        if orphaned.finished.setdefault(without_id, (name, result))[0] != name:
            orphaned.unfinished.append(name)  # the same spec twice: one is enough
    return orphaned
