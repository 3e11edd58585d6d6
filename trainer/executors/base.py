"""The interface that runs trials: an :class:`Executor` takes a spec and returns a :class:`Job`.

Values go in (a TrialSpec and the path of a directory) and values come out (points and a Finished),
so that the trial can run in another process or on another machine. To run several trials at once,
submit several; to run one and wait for it, call :meth:`Executor.run`.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias

from autoresearch.closing import Closing
from autoresearch.errors import MachineryError
from trainer.isolation.outcome import TrialAborted, aborted
from trainer.schema import CurvePoint, Measured, Place, TrialFailed, TrialSpec

__all__ = ["Executor", "Finished", "Job", "LaneLost", "StillRunning", "TrialAborted"]

POLL_S = 0.1
"""Interval between two checks of a job, and so the longest delay of a curve's points or a stop."""
CANCEL_S = 15.0
"""Longest wait for a cancelled job, which ends within seconds, before an error is raised again."""
_MOST_POINTS = 1 << 16
"""Points kept of a curve that is not read; the oldest are dropped."""


class StillRunning(TimeoutError):
    """The trial has not ended within the time given to :meth:`Job.result`."""


class LaneLost(MachineryError):
    """The trial's machine, process or server died, and the trial with it.

    It is no evidence about the trial, which may run again on another lane.
    """


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial's one result. ``wall_s`` runs from when a place was free for it to the result."""

    result: Measured | TrialFailed
    wall_s: float
    place: Place | None = None
    """The place where it ran; None if there is only one place, on this machine."""


Metered: TypeAlias = Callable[[Measured | TrialFailed, Collection[int]], Measured | TrialFailed]
"""Adds to a trial's result what it used of the device. The numbers are those of its processes."""
Meter: TypeAlias = Callable[[TrialSpec], contextlib.AbstractContextManager[Metered]]
"""Measures what a trial uses of the device from when the context is entered."""


class Job:
    """A submitted trial. It runs within its limits and ends, even if no method is called."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        self.spec = spec
        self.trial_dir = trial_dir
        self.cancelled = threading.Event()
        self.lost_on: list[object] = []
        """The lanes that died with it, one per loss."""
        self.ended: futures.Future[Finished] = futures.Future()
        """Its end, for those who wait for several."""
        self._lock = threading.Lock()
        """Guards whether it runs against a cancel."""
        self._runs = False
        self._place: Place | None = None
        self._points: deque[CurvePoint] = deque(maxlen=_MOST_POINTS)
        """Points that arrived and are not read yet."""
        self._last_step = -1

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the trial has ended or the timeout has passed; return whether it has ended.

        None waits without a limit.
        """
        with contextlib.suppress(TimeoutError):
            self.ended.exception(timeout_s)
        return self.ended.done()

    def done(self) -> bool:
        """Return whether the trial has ended, with or without a result."""
        return self.wait(0)

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
        if not self.wait(timeout_s):
            raise StillRunning(f"trial {self.spec.trial_id} has not ended within {timeout_s:g} s")
        return self.ended.result()

    def place(self) -> Place | None:
        """Return where it runs or ran; None while it waits for a place, or if there is only one."""
        return self._place

    def points(self) -> tuple[CurvePoint, ...]:
        """Return the curve's points that arrived since the last call, each once and in order.

        All have arrived when the trial has ended.
        """
        return tuple(self._points.popleft() for _ in range(len(self._points)))

    def cancel(self) -> None:
        """End the trial, or never start it, without waiting; an ended trial keeps its result.

        When the job is done, none of the trial's processes is left.
        """
        with self._lock:
            self.cancelled.set()
            runs = self._runs
        if not runs:
            self.fail(aborted(self.spec.trial_id))

    # --- for its executor ------------------------------------------------------------------------

    def begin(self, place: Place | None) -> bool:
        """Record that a place runs the trial; return False if it was cancelled before."""
        with self._lock:
            self._runs = not self.cancelled.is_set()
            self._place = place
        return self._runs

    def wait_again(self) -> None:
        """Record that its place was lost and that it waits for another."""
        with self._lock:
            self._runs = False
            self._place = None
            was_cancelled = self.cancelled.is_set()
        if was_cancelled:
            self.fail(aborted(self.spec.trial_id))

    def arrive(self, point: CurvePoint) -> None:
        """Add a point of the curve; a step that an earlier attempt reported is dropped."""
        if point.step > self._last_step:
            self._last_step = point.step
            self._points.append(point)

    def succeed(self, finished: Finished) -> None:
        """Set its result unless it has ended."""
        with contextlib.suppress(futures.InvalidStateError):
            self.ended.set_result(finished)

    def fail(self, error: BaseException) -> None:
        """Set the error with which it ended without a result, unless it has ended."""
        with contextlib.suppress(futures.InvalidStateError):
            self.ended.set_exception(error)


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

    async def wait(self, ended: asyncio.Future[Finished], timeout_s: float) -> None:
        """Wait until a trial has ended or the timeout has passed.

        An executor whose trials take no real time advances its own clock instead.

        :param ended: of :attr:`Job.ended`.
        """
        await asyncio.wait([ended], timeout=timeout_s)

    def describe(self) -> str:
        """Return how trials are confined and started, for the journal and the screen."""

    def meter_by(self, choose: Callable[[str | None], Meter]) -> None:
        """Have each lane's trials metered, if they run on this machine.

        :param choose: returns the meter of a GPU, by its name in CUDA_VISIBLE_DEVICES; None: of the
            campaign's device.
        """
        return

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
