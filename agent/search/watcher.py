"""Interface for following the loop while it runs."""

from __future__ import annotations

from typing import Protocol

from agent.judge import Assessment
from agent.search.trials import TrialWatcher
from trajectory.rows import BaselineRow, IterationRow


class Watcher(TrialWatcher, Protocol):
    """Shows the loop to a person."""

    def note(self, text: str) -> None: ...
    def baseline_measured(self, row: BaselineRow) -> None: ...
    def proposing(self, iteration: int) -> None: ...
    def assessed(self, assessment: Assessment) -> None: ...
    def iteration_ended(self, row: IterationRow) -> None: ...
