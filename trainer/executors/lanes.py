"""Combine several places, the lanes, into one executor: a trial may move to another lane."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autoresearch.closing import Closing
from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.files import replace_file
from autoresearch.layout import LANE_FILE, RESULT_FILE
from autoresearch.words import counted
from trainer.executors.base import Executor, Finished, FutureJob, Job, LaneLost
from trainer.isolation.outcome import aborted
from trainer.isolation.scratch import clear
from trainer.spec import CurvePoint, Place, TrialSpec


@dataclass(eq=False)
class Lane(Closing):
    """A place where one trial runs at a time, with a name for the journal and the screen."""

    place: Place
    executor: Executor
    reopen: Callable[[], bool] = lambda: True
    """Waits, after a loss, until the lane takes trials again, and returns whether it does. A lane
    on this machine does so immediately."""

    def close(self) -> None:
        """End the trial that runs there."""
        self.executor.close()


class LanesJob(FutureJob):
    """A trial of a :class:`Lanes`, which creates these jobs."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        super().__init__(spec.trial_id)
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
        self._lock = threading.Lock()
        self._inner: Job | None = None
        self._place: Place | None = None

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
        """Set its result unless it has ended."""
        with contextlib.suppress(futures.InvalidStateError):
            self.future.set_result(finished)

    def fail(self, error: BaseException) -> None:
        """Set the error with which it ended without a result, unless it has ended."""
        with contextlib.suppress(futures.InvalidStateError):
            self.future.set_exception(error)


MOST_LOSSES = 2
"""Most times a trial runs again because its lane died."""


class Lanes(Executor):
    """Several executors of one place each, as one executor of several places.

    Trials take the first free lane, in the order of their submissions. A trial whose lane is lost
    runs again, before the waiting trials, on the first other lane that is free, at most
    :data:`MOST_LOSSES` times. The lost lane gets trials again once it is repaired. If no lane can
    be repaired, the waiting trials fail.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        """
        :param lanes: open lanes, which close with this executor.
        """
        self._lanes = list(lanes)
        self.places = len(self._lanes)
        self._free = deque(self._lanes)
        self._waiting: deque[LanesJob] = deque()
        self._lock = threading.Lock()
        """Guards the free lanes and the waiting trials; no lane is called while it is held."""
        self._closing = False
        self._away = set[Lane]()
        """Lanes that are lost, until they are repaired."""
        self._gone: dict[Lane, LaneLost] = {}
        """Lanes that are lost and not reopened, and why."""
        self.on_loss: Callable[[str], None] = lambda _: None
        """Tells a person which lane was lost. Called in a thread of the lane."""

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._lanes[0].executor.describe()

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LanesJob:
        """See :meth:`Executor.submit`."""
        job = LanesJob(spec, trial_dir)
        with self._lock:
            if self._closing:
                raise MachineryError("this executor is closed; create another to run more trials")
            if self._all_gone:
                how = "; ".join(map(str, self._gone.values()))
                raise LaneLost(f"every lane is lost ({how}); see what became of their machines")
            self._waiting.append(job)
        self._fill()
        return job

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._lock:
            self._closing = True
            left = list(self._waiting)
            self._waiting.clear()
        for job in left:
            job.cancel()
        with futures.ThreadPoolExecutor(self.places, thread_name_prefix="closing") as each:
            # A closing lane ends its trial, which may take the grace period: close all at once.
            list(each.map(Lane.close, self._lanes))

    def _fill(self) -> None:
        """Give the free lanes the waiting trials."""
        while True:
            with self._lock:
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
        """Return a free lane and a waiting trial that may run there, if there are any.

        A trial returns to a lane that it was lost on only if every other working lane lost it too.
        """
        for job in [job for job in self._waiting if job.done()]:
            self._waiting.remove(job)
        for job in self._waiting:
            usable = set(self._lanes) - self._away
            for lane in self._free:
                if lane not in job.lost_on or usable <= job.lost_on:
                    return lane, job
        return None

    @property
    def _all_gone(self) -> bool:
        return len(self._gone) == len(self._lanes)

    def _start(self, lane: Lane, job: LanesJob) -> None:
        with contextlib.suppress(OSError):  # for viewers; the trial can do without
            job.trial_dir.mkdir(parents=True, exist_ok=True)
            replace_file(job.trial_dir / LANE_FILE, lane.place.lane)
        try:
            inner = lane.executor.submit(job.spec, job.trial_dir)
        except AutoresearchError as error:
            job.fail(aborted(job.spec.trial_id) if self._closing else error)
            self._is_free(lane)
            return
        job.runs_on(lane.place, inner)
        inner.when_free(partial(self._left, lane, inner))
        inner.when_done(partial(self._ended, lane, job, inner))

    def _left(self, lane: Lane, inner: Job) -> None:
        """Free the lane once its place is free, so that the next trial starts before the result.

        Runs in a thread of the lane.
        """
        try:
            inner.result(0)
        except LaneLost:
            return  # the trial has ended because its lane died
        except BaseException:  # noqa: BLE001 (the job's result() raises it)
            pass
        self._is_free(lane)

    def _ended(self, lane: Lane, job: LanesJob, inner: Job) -> None:
        """Settle a trial that has ended, or let it wait again. Runs in a thread of the lane."""
        try:
            finished = inner.result(0)
        except LaneLost as lost:
            with self._lock:
                self._away.add(lane)
                left = self.places - len(self._away)
            rest = f"{counted(left, 'lane')} left" if left else "the loop waits until one is back"
            self.on_loss(f"{lost}; {rest}")
            if not self._runs_again(job, lane):
                job.fail(lost)
            threading.Thread(target=self._reopen, args=(lane, lost), daemon=True).start()
            self._fill()
            return
        except BaseException as error:  # noqa: BLE001 (the job's result() raises it)
            job.fail(error)
        else:
            job.succeed(replace(finished, place=lane.place))

    def _runs_again(self, job: LanesJob, lost_on: Lane) -> bool:
        """Let a lost trial wait for a lane again; return whether it does."""
        job.losses += 1
        job.lost_on.add(lost_on)
        if job.losses > MOST_LOSSES or job.cancelled:
            return False
        with contextlib.suppress(OSError):
            # A result file that the trial left would keep it from running again.
            clear(job.trial_dir / RESULT_FILE)
        with self._lock:
            if self._closing:
                return False
            job.waits_again()
            self._waiting.appendleft(job)
        return True

    def _reopen(self, lane: Lane, lost: LaneLost) -> None:
        """Wait for a lost lane's repair. Runs in its own thread, since that may take long."""
        if lane.reopen():
            self._is_free(lane)
            return
        with self._lock:
            self._gone[lane] = lost
            left = list(self._waiting) if self._all_gone else []
        for job in left:
            job.fail(lost)

    def _is_free(self, lane: Lane) -> None:
        with self._lock:
            self._away.discard(lane)
            self._free.append(lane)
        self._fill()
