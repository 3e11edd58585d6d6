"""Forward the loop's events to a watcher and to the loggers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agent.judge import Assessment
from agent.loggers.background import CLOSE_S, BackgroundLogger
from agent.loggers.base import RunEvent, TrialBegan, TrialEnded, TrialPoint
from agent.search.watcher import Watcher
from trainer.spec import CurvePoint, Place, TrialSpec
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord


class LoggingWatcher(Watcher):
    """Passes every event to another watcher, and those that can be logged to the loggers.

    A logger's failure is reported between iterations, when the loop's own thread has the journal.
    """

    def __init__(
        self,
        watcher: Watcher,
        loggers: Sequence[BackgroundLogger],
        on_trouble: Callable[[str], None],
    ) -> None:
        """Wrap a watcher.

        :param on_trouble: called once for each abandoned logger.
        """
        self._watcher = watcher
        self._loggers = list(loggers)
        self._on_trouble = on_trouble

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def baseline_measured(self, row: BaselineRow) -> None:
        self._watcher.baseline_measured(row)
        self._log(row)
        self._report_trouble()

    def proposing(self, iteration: int) -> None:
        self._watcher.proposing(iteration)

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        self._watcher.trial_started(spec, role)
        self._log(TrialBegan(spec, role))

    def trial_placed(self, trial_id: str, place: Place) -> None:
        self._watcher.trial_placed(trial_id, place)

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        self._watcher.trial_point(trial_id, point)
        self._log(TrialPoint(trial_id, point))

    def trial_ended(self, record: TrialRecord) -> None:
        self._watcher.trial_ended(record)
        self._log(TrialEnded(record))

    def trial_given_up(self, trial_id: str) -> None:
        self._watcher.trial_given_up(trial_id)

    def assessed(self, assessment: Assessment) -> None:
        self._watcher.assessed(assessment)

    def iteration_ended(self, row: IterationRow) -> None:
        self._watcher.iteration_ended(row)
        self._log(row)
        self._report_trouble()

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Let the loggers finish within ``wait_s`` seconds in all, and report their failures."""
        until = time.monotonic() + wait_s
        for logger in self._loggers:
            logger.end()
        for logger in self._loggers:
            logger.close(max(0.0, until - time.monotonic()))
        self._report_trouble()

    def _log(self, event: RunEvent) -> None:
        for logger in self._loggers:
            logger.log(event)

    def _report_trouble(self) -> None:
        for logger in [one for one in self._loggers if one.trouble is not None]:
            self._loggers.remove(logger)
            self._on_trouble(logger.trouble or "")
