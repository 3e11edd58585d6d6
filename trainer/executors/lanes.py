"""Several places as one executor: a trial runs on whichever lane is free."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoresearch.closing import Closing
from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import RESULT_FILE
from trainer.executors.base import Executor, Finished, Job, LaneLost, StillRunning
from trainer.isolation.outcome import aborted
from trainer.spec import CurvePoint, Place, TrialSpec

MOST_LOSSES = 2
"""How often a trial runs again because what ran it died."""


class Lane(Closing):
    """A place where one trial runs at a time, with a name for rows and screens."""

    def __init__(self, place: Place, executor: Executor) -> None:
        self.place = place
        self.executor = executor

    def mend(self) -> bool:
        """After a loss: wait until it takes trials again; whether it does. One on this machine does
        at once."""
        return True

    def close(self) -> None:
        """End what runs there."""
        self.executor.close()


class Lanes(Executor):
    """Some executors of one place each, as one of several.

    What is submitted takes the first free lane, in the order of the submissions; a lane that is
    free takes the one that waits longest. A trial whose lane is lost runs again, ahead of what
    waits, on the first other lane that is free, :data:`MOST_LOSSES` times at most. The lost one is
    given trials again once it is mended; where none is left that could be, what waits fails.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        """
        :param lanes: opened, and closed with this.
        """
        self._lanes = list(lanes)
        self.places = len(self._lanes)
        self._free = deque(self._lanes)
        self._waiting: deque[LanesJob] = deque()
        self._door = threading.Lock()
        """Held while the free lanes and the waiting trials are looked at; a lane is never told
        anything meanwhile."""
        self._closing = False
        self._away = set[Lane]()
        """Lanes that are lost, until they are mended."""
        self._gone = 0
        """How many of them are lost for good."""

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._lanes[0].executor.describe()

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LanesJob:
        """See :meth:`Executor.submit`."""
        job = LanesJob(spec, trial_dir)
        with self._door:
            if self._closing:
                raise MachineryError("this executor is closed; create another to run more trials")
            if self._gone == self.places:
                raise LaneLost("every lane is lost; see what became of their machines, then go on")
            self._waiting.append(job)
            must_wait = not self._free
        self._fill()
        if must_wait:
            self._lanes[0].executor.make_ready(spec, trial_dir)
        return job

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._door:
            self._closing = True
            left = list(self._waiting)
            self._waiting.clear()
        for job in left:
            job.cancel()
        with futures.ThreadPoolExecutor(self.places, thread_name_prefix="closing") as each:
            # A closing lane ends its trial, which may take its grace: all do so at once.
            list(each.map(Lane.close, self._lanes))

    def _fill(self) -> None:
        """Give free lanes what waits."""
        while True:
            with self._door:
                if not self._free or not self._waiting:
                    return
                pair = self._next()
                if pair is None:
                    return
                lane, job = pair
                self._free.remove(lane)
                self._waiting.remove(job)
            self._start(lane, job)

    def _next(self) -> tuple[Lane, LanesJob] | None:
        """The free lane and the waiting trial that go together, if any do. A trial goes back to a
        lane that it was lost on only where it was lost on every other one that works too."""
        for job in [job for job in self._waiting if job.done()]:
            self._waiting.remove(job)
        usable = set(self._lanes) - self._away
        for job in self._waiting:
            for lane in self._free:
                if lane not in job.lost_on or usable <= job.lost_on:
                    return lane, job
        return None

    def _start(self, lane: Lane, job: LanesJob) -> None:
        try:
            inner = lane.executor.submit(job.spec, job.trial_dir)
        except AutoresearchError as error:
            job.fail(aborted(job.spec.trial_id) if self._closing else error)
            self._is_free(lane)
            return
        job.runs_on(lane.place, inner)
        stay = _Stay(lane)
        inner.when_free(partial(self._left, stay, inner))
        inner.when_done(partial(self._ended, stay, job, inner))

    def _left(self, stay: _Stay, inner: Job) -> None:
        """In a thread of the lane's, once its place is free: the next begins before what came of
        the trial is known."""
        if not inner.done():
            self._leave(stay)

    def _ended(self, stay: _Stay, job: LanesJob, inner: Job) -> None:
        """In a thread of the lane's, once its trial has ended."""
        lane = stay.lane
        try:
            finished = inner.result(0)
        except LaneLost as lost:
            with self._door:
                self._away.add(lane)
            if not self._runs_again(job, lane):
                job.fail(lost)
            threading.Thread(target=self._mend, args=(lane, lost), daemon=True).start()
            self._fill()
            return
        except BaseException as error:  # noqa: BLE001 (raised again where the result is asked for)
            job.fail(error)
        else:
            job.succeed(replace(finished, place=lane.place))
        self._leave(stay)

    def _leave(self, stay: _Stay) -> None:
        """Once."""
        with self._door:
            here, stay.is_over = not stay.is_over, True
        if here:
            self._is_free(stay.lane)

    def _runs_again(self, job: LanesJob, lost_on: Lane) -> bool:
        """Whether it waits for a lane once more."""
        job.losses += 1
        job.lost_on.add(lost_on)
        if job.losses > MOST_LOSSES or job.cancelled:
            return False
        with contextlib.suppress(OSError):
            # Written before its supervisor was gone, so that nobody has vouched for it.
            (job.trial_dir / RESULT_FILE).unlink(missing_ok=True)
        with self._door:
            if self._closing:
                return False
            job.waits_again()
            self._waiting.appendleft(job)
        return True

    def _mend(self, lane: Lane, lost: LaneLost) -> None:
        """In a thread of its own: a node may be away for long."""
        if lane.mend():
            self._is_free(lane)
            return
        with self._door:
            self._gone += 1
            left = list(self._waiting) if self._gone == self.places else []
        for job in left:
            job.fail(lost)

    def _is_free(self, lane: Lane) -> None:
        with self._door:
            self._away.discard(lane)
            self._free.append(lane)
        self._fill()


class _Stay:
    """A trial's time on a lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.is_over = False


class LanesJob(Job):
    """A trial of a :class:`Lanes`, which alone makes them."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        self.spec = spec
        self.trial_dir = trial_dir
        self.losses = 0
        """Lanes that died with it."""
        self.lost_on = set[Lane]()
        """Where that was."""
        self._told_step, self._known_step = -1, -1
        """The last step that was told of its curve, and that was when its lane was lost: another
        attempt begins anew."""
        self.cancelled = False
        self._found: futures.Future[Finished] = futures.Future()
        self._door = threading.Lock()
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
        told = tuple(point for point in new if point.step > self._known_step)
        self._told_step = max((self._told_step, *(point.step for point in told)))
        return told

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        with self._door:
            self.cancelled = True
            inner = self._inner
        if inner is not None:
            inner.cancel()
        else:
            self.fail(aborted(self.spec.trial_id))

    # --- for its executor ------------------------------------------------------------------------

    def runs_on(self, place: Place, inner: Job) -> None:
        """It was given to a lane."""
        with self._door:
            self._place, self._inner = place, inner
            cancelled = self.cancelled
        if cancelled:
            inner.cancel()

    def waits_again(self) -> None:
        """Its lane was lost."""
        with self._door:
            self._place = self._inner = None
            self._known_step = self._told_step

    def succeed(self, finished: Finished) -> None:
        """It has a result."""
        self._settle(lambda: self._found.set_result(finished))

    def fail(self, error: BaseException) -> None:
        """It ended without one."""
        self._settle(lambda: self._found.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        """Once: what ended stays as it is."""
        with contextlib.suppress(futures.InvalidStateError):
            settle()
