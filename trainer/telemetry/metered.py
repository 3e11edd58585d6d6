"""Gives every trial the energy that its interval took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from trainer.executors.base import Executor, Finished, Job
from trainer.spec import CurvePoint, Place, TrialFailed, TrialSpec


class Meter(Protocol):
    """What tells the energy of an interval; a Sampler is one."""

    def mark(self) -> float: ...
    def energy_wh(self, since_s: float, until_s: float | None = None) -> float | None: ...


class MeteredExecutor(Executor):
    """An executor whose measured trials carry ``energy_wh``.

    The interval is the whole trial, from the request to the result in hand: start-up, training
    and evaluation, with what the device draws when idle. Where several trials run at once nobody
    can say which drew what, so that none carries any.
    """

    def __init__(self, executor: Executor, meter: Meter) -> None:
        self._executor = executor
        self._meter = meter
        self.places = executor.places
        self.places_by_kind = executor.places_by_kind

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        """See :meth:`Executor.submit`."""
        if self.places > 1:
            return self._executor.submit(spec, trial_dir)
        since_s = self._meter.mark()
        asked_s = time.monotonic()
        return _MeteredJob(self._executor.submit(spec, trial_dir), self._meter, since_s, asked_s)

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """See :meth:`Executor.wait`."""
        self._executor.wait(wake, timeout_s)

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._executor.describe()

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        self._executor.close()


class _MeteredJob(Job):
    """A job whose result is measured up to the moment that it was there."""

    def __init__(self, job: Job, meter: Meter, since_s: float, asked_s: float) -> None:
        self._job = job
        self._meter = meter
        self._since_s = since_s
        self._asked_s = asked_s
        self._finished: Finished | None = None

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Job.wait`."""
        return self._job.wait(timeout_s)

    def result(self, timeout_s: float | None = None) -> Finished:
        """See :meth:`Job.result`."""
        if self._finished is None:
            self._finished = self._measured(self._job.result(timeout_s))
        return self._finished

    def when_done(self, callback: Callable[[], None]) -> None:
        """See :meth:`Job.when_done`."""
        self._job.when_done(callback)

    def place(self) -> Place | None:
        """See :meth:`Job.place`."""
        return self._job.place()

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        return self._job.points()

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        self._job.cancel()

    def _measured(self, finished: Finished) -> Finished:
        if isinstance(finished.result, TrialFailed):
            return finished
        energy_wh = self._meter.energy_wh(self._since_s, self._asked_s + finished.wall_s)
        if energy_wh is None:
            return finished
        result = finished.result.model_copy(update={"energy_wh": energy_wh})
        return replace(finished, result=result)
