"""The interface that runs trials: an :class:`Executor` takes a spec and returns a :class:`Job`.

Values go in (a TrialSpec and the path of a directory) and values come out (points and a Finished),
so that the trial can run in another process or on another machine. To run several trials at once,
submit several; to run one and wait for it, call :meth:`Executor.run`.
"""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from autoresearch.closing import Closing
from autoresearch.errors import MachineryError
from trainer.isolation.outcome import TrialAborted, aborted
from trainer.spec import CurvePoint, Measured, Place, TrialFailed, TrialSpec

__all__ = [
    "Executor",
    "Finished",
    "FutureJob",
    "Job",
    "LaneLost",
    "StillRunning",
    "TrialAborted",
]

POLL_S = 0.1
"""Interval between two checks of a job, and so the longest delay of a curve's points or a stop."""
CANCEL_S = 15.0
"""Longest wait for a cancelled job, which ends within seconds, before an error is raised again."""


class StillRunning(TimeoutError):
    """The trial has not ended within the time given to :meth:`Job.result`."""


class LaneLost(MachineryError):
    """The trial's machine, process or server died, and the trial with it.

    It is no evidence about the trial, which may run again on another lane.
    """


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial's one result.

    ``wall_s`` runs from the request, or from when a place was free for it, to the result.
    """

    result: Measured | TrialFailed
    wall_s: float
    place: Place | None = None
    """The place where it ran; None if there is only one place, on this machine."""


class Job(ABC):
    """A submitted trial. It runs within its limits and ends, even if no method is called."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the trial has ended or the timeout has passed; return whether it has ended.

        None waits without a limit.
        """

    def done(self) -> bool:
        """Return whether the trial has ended, with or without a result."""
        return self.wait(0)

    @abstractmethod
    def result(self, timeout_s: float | None = None) -> Finished:
        """Wait for the trial's end and return its result; every call returns the same.

        :raises StillRunning: if that takes longer than ``timeout_s``.
        :raises TrialAborted: if it was cancelled before it had a result.
        :raises SpecError: if no trainer could run the spec.
        :raises CorpusError: if the corpus is not the one meant.
        :raises SandboxError: if the trial cannot be confined.
        :raises LaneLost: if its machine, process or server died.
        :raises MachineryError: if the machinery failed; the trial is not counted.
        """

    @abstractmethod
    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the trial has ended: once, from any thread, now if it has ended.

        It must be quick and raise nothing. To wait for the first of several jobs, give each the
        same callback, one that wakes the waiting thread.
        """

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the trial's place is free for the next, as :meth:`when_done` does.

        That is when the trial has ended, or earlier: as soon as none of its processes runs, while
        its result is still being read. If the place is lost with it, that is at its end.
        """
        self.when_done(callback)

    def place(self) -> Place | None:
        """Return where it runs or ran; None while it waits for a place, or if there is only one."""
        return None

    @abstractmethod
    def points(self) -> tuple[CurvePoint, ...]:
        """Return the curve's points that arrived since the last call, each once and in order.

        All have arrived when the trial has ended.
        """

    @abstractmethod
    def cancel(self) -> None:
        """End the trial, or never start it, without waiting; an ended trial keeps its result.

        When the job is done, none of the trial's processes is left.
        """


class FutureJob(Job):
    """A trial whose result a future holds once the trial has ended."""

    def __init__(self, trial_id: str) -> None:
        self._trial_id = trial_id
        self.future: futures.Future[Finished] = futures.Future()

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Job.wait`."""
        with contextlib.suppress(TimeoutError, futures.CancelledError):
            self.future.exception(timeout_s)
        return self.future.done()

    def result(self, timeout_s: float | None = None) -> Finished:
        """See :meth:`Job.result`."""
        if not self.wait(timeout_s):
            raise StillRunning(f"trial {self._trial_id} has not ended within {timeout_s:g} s")
        if self.future.cancelled():
            raise aborted(self._trial_id)
        return self.future.result()

    def when_done(self, callback: Callable[[], None]) -> None:
        """See :meth:`Job.when_done`."""
        self.future.add_done_callback(lambda _future: callback())


class Executor(Closing, Protocol):
    """The interface for ways of running trials. The code that opens one closes it."""

    places: int = 1
    """Trials that run at once; any further trial that is submitted waits for its turn."""
    kind: str | None = None
    """The kind of the devices of other machines; None if all trials run on this one."""
    refused: Mapping[str, str] = MappingProxyType({})
    """Reasons why machines are unfit, by their names."""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        """Run a trial as ``spec`` says, only inside ``trial_dir``; return without waiting for it.

        Jobs start in the order in which they were submitted, as soon as a place is free. The
        trial's ``spec.json`` is on the disk before it starts.

        :raises MachineryError: if the executor is closed. The job raises every other error.
        """

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """Wait until ``wake`` is set, as by a job's end (:meth:`Job.when_done`), or the timeout.

        An executor whose trials take no real time advances its own clock instead.
        """
        wake.wait(timeout_s)

    def describe(self) -> str:
        """Return how trials are confined and started, for the journal and the screen."""

    def close(self) -> None:
        """Cancel the trials that have not ended, and leave no process; do nothing if closed."""

    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        *,
        on_point: Callable[[CurvePoint], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Finished:
        """Submit a trial and wait for its result.

        ``on_point`` is called with each point of the curve soon after the trial writes it.
        ``should_stop`` is called several times a second, and once it returns True the trial is
        cancelled. If either raises, or a person interrupts, the trial is ended first.

        :raises AutoresearchError: see :meth:`submit` and :meth:`Job.result`.
        """
        job = self.submit(spec, trial_dir)
        try:
            ended = False
            while not ended:
                ended = job.wait(POLL_S)
                for point in job.points():
                    if on_point is not None:
                        on_point(point)
                if not ended and should_stop is not None and should_stop():
                    job.cancel()
        except BaseException:
            job.cancel()
            job.wait(CANCEL_S)
            raise
        return job.result()
