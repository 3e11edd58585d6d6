"""Provide executors that train nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from autoresearch.errors import AutoresearchError
from trainer.executors.base import Executor, Finished, Job
from trainer.spec import CurvePoint, TrialSpec


class InstantExecutor(Executor):
    """An executor whose trials end as soon as they are submitted."""

    @abstractmethod
    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        """Return the trial's result or raise its error; ``tell`` receives its curve."""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        points: list[CurvePoint] = []
        try:
            return _Ended(self.train(spec, trial_dir, points.append), points)
        except AutoresearchError as error:
            return _Ended(error, points)

    def describe(self) -> str:
        return "no trial runs"

    def close(self) -> None:
        """Do nothing: no trial runs."""


class _Ended(Job):
    def __init__(self, outcome: Finished | AutoresearchError, points: list[CurvePoint]) -> None:
        self._outcome = outcome
        self._points = tuple(points)

    def wait(self, timeout_s: float | None = None) -> bool:
        return True

    def result(self, timeout_s: float | None = None) -> Finished:
        if isinstance(self._outcome, AutoresearchError):
            raise self._outcome
        return self._outcome

    def when_done(self, callback: Callable[[], None]) -> None:
        callback()

    def points(self) -> tuple[CurvePoint, ...]:
        points, self._points = self._points, ()
        return points

    def cancel(self) -> None:
        """Do nothing: the trial has ended."""
