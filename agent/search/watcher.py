"""Receive events of the loop and its trials; each method does nothing by default."""

from __future__ import annotations

from agent.judge import Assessment
from trainer.spec import CurvePoint, Place, TrialSpec
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord


class TrialWatcher:
    """Follows running trials."""

    def trial_started(self, spec: TrialSpec, role: Role) -> None: ...
    def trial_placed(self, trial_id: str, place: Place) -> None:
        """Report where a trial runs, if it waited for a lane or several lanes are busy."""

    def trial_point(self, trial_id: str, point: CurvePoint) -> None: ...
    def trial_ended(self, record: TrialRecord) -> None: ...
    def trial_given_up(self, trial_id: str) -> None:
        """Report that an unwanted trial was cancelled and has ended."""


class Watcher(TrialWatcher):
    """Follows the loop."""

    def note(self, text: str) -> None: ...
    def baseline_measured(self, row: BaselineRow) -> None: ...
    def proposing(self, iteration: int) -> None: ...
    def assessed(self, assessment: Assessment) -> None: ...
    def iteration_ended(self, row: IterationRow) -> None: ...
