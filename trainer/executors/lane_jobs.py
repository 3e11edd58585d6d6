"""A lane, and a trial that waits for one, runs on it, and may move to another."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

from autoresearch.closing import Closing
from trainer.executors.base import Executor, Finished, Job, StillRunning
from trainer.isolation.outcome import aborted
from trainer.spec import CurvePoint, Place, TrialSpec


class Lane(Closing):
    """A place where one trial runs at a time, with a name for the journal and the screen."""

    def __init__(self, place: Place, executor: Executor) -> None:
        self.place = place
        self.executor = executor

    def reopen(self) -> bool:
        """Wait, after a loss, until the lane takes trials again; return whether it does.

        A lane on this machine does so immediately.
        """
        return True

    def close(self) -> None:
        """End the trial that runs there."""
        self.executor.close()


class Stay:
    """A trial's time on a lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.is_over = False


class LanesJob(Job):
    """A trial of a :class:`Lanes`, which creates these jobs."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        self.spec = spec
        self.trial_dir = trial_dir
        self.losses = 0
        """How often its lane died."""
        self.lost_on = set[Lane]()
        """The lanes that died with it."""
        self._reported_step, self._known_step = -1, -1
        """The last reported step of its curve, now and when its lane was last lost. The next
        attempt starts over, so its points up to the second are not reported again."""
        self.cancelled = False
        self._found: futures.Future[Finished] = futures.Future()
        self._lock = threading.Lock()
        self._inner: Job | None = None
        self._place: Place | None = None

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Job.wait`."""
        with contextlib.suppress(TimeoutError):
            self._found.exception(timeout_s)
        return self._found.done()

    def result(self, timeout_s: float | None = None) -> Finished:
        """See :meth:`Job.result`."""
        if not self.wait(timeout_s):
            raise StillRunning(f"trial {self.spec.trial_id} has not ended within {timeout_s:g} s")
        return self._found.result()

    def when_done(self, callback: Callable[[], None]) -> None:
        """See :meth:`Job.when_done`."""
        self._found.add_done_callback(lambda _found: callback())

    def place(self) -> Place | None:
        """See :meth:`Job.place`."""
        return self._place

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        inner = self._inner
        new = () if inner is None else inner.points()
        new_points = tuple(point for point in new if point.step > self._known_step)
        self._reported_step = max((self._reported_step, *(point.step for point in new_points)))
        return new_points

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        with self._lock:
            self.cancelled = True
            inner = self._inner
        if inner is not None:
            inner.cancel()
        else:
            self.fail(aborted(self.spec.trial_id))

    # --- for its executor ------------------------------------------------------------------------

    def runs_on(self, place: Place, inner: Job) -> None:
        """Record that a lane runs the trial."""
        with self._lock:
            self._place, self._inner = place, inner
            cancelled = self.cancelled
        if cancelled:
            inner.cancel()

    def waits_again(self) -> None:
        """Record that its lane was lost and that it waits for another."""
        with self._lock:
            self._place = self._inner = None
            self._known_step = self._reported_step

    def succeed(self, finished: Finished) -> None:
        """Set its result."""
        self._settle(lambda: self._found.set_result(finished))

    def fail(self, error: BaseException) -> None:
        """Set the error with which it ended without a result."""
        self._settle(lambda: self._found.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        """Settle the job unless it has ended, since its first result stays."""
        with contextlib.suppress(futures.InvalidStateError):
            settle()
