"""The product's seam for running trials, with a world in place of a trainer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.files import replace_file
from autoresearch.layout import CURVE_FILE, RESULT_FILE
from bench.simulator.world import World
from trainer.executors.base import Executor, Finished, Job
from trainer.isolation.trial_files import TrialFiles
from trainer.spec import CurvePoint, TrialOk, TrialSpec


class SimulatedExecutor(Executor):
    """Trials that are over as soon as they are submitted, and say how long they would have taken.

    Each leaves the files that a real one leaves, so that curves are read and interrupted nights
    resumed as ever.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._door = threading.Lock()
        self._closed = False

    def submit(self, spec: TrialSpec, trial_dir: Path) -> SimulatedJob:
        """See :meth:`Executor.submit`."""
        with self._door:
            if self._closed:
                raise MachineryError("this executor is closed; create another to run more trials")
            try:
                return self._run(spec, trial_dir)
            except AutoresearchError as error:
                return SimulatedJob(error, ())

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return f"simulated in the world {self._world.name}"

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._door:
            self._closed = True

    def _run(self, spec: TrialSpec, trial_dir: Path) -> SimulatedJob:
        files = TrialFiles(spec, trial_dir)
        try:
            result, points = self._world.outcome(spec)
            lines = b"".join(point.model_dump_json().encode() + b"\n" for point in points)
            replace_file(trial_dir / CURVE_FILE, lines)
            replace_file(trial_dir / RESULT_FILE, result.model_dump_json())
        finally:
            files.close()
        if isinstance(result, TrialOk):
            took_s = result.train_s
        else:
            took_s = points[-1].elapsed_s if points else self._world.failure_s
        return SimulatedJob(Finished(result, took_s), points)


class SimulatedJob(Job):
    """A trial that has ended. A :class:`SimulatedExecutor` alone makes them."""

    def __init__(
        self, outcome: Finished | AutoresearchError, points: tuple[CurvePoint, ...]
    ) -> None:
        self._outcome = outcome
        self._points = points

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Job.wait`."""
        return True

    def result(self, timeout_s: float | None = None) -> Finished:
        """See :meth:`Job.result`."""
        if isinstance(self._outcome, AutoresearchError):
            raise self._outcome
        return self._outcome

    def when_done(self, callback: Callable[[], None]) -> None:
        """See :meth:`Job.when_done`: it has ended."""
        callback()

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        points, self._points = self._points, ()
        return points

    def cancel(self) -> None:
        """See :meth:`Job.cancel`: it has ended."""
