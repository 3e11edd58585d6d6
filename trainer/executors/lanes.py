"""Several places as one executor: a trial runs on whichever lane is free."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from concurrent import futures
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import RESULT_FILE
from trainer.executors.base import Executor, Job, LaneLost
from trainer.executors.lane_jobs import Lane, LanesJob, Stay
from trainer.isolation.outcome import aborted
from trainer.isolation.scratch import clear
from trainer.spec import TrialSpec

__all__ = ["MOST_LOSSES", "Lane", "Lanes", "LanesJob"]

MOST_LOSSES = 2
"""How often a trial runs again because what ran it died."""


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
        self._gone = set[Lane]()
        """Those of them that are lost for good."""

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._lanes[0].executor.describe()

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LanesJob:
        """See :meth:`Executor.submit`."""
        job = LanesJob(spec, trial_dir)
        with self._door:
            if self._closing:
                raise MachineryError("this executor is closed; create another to run more trials")
            if self._all_gone:
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
        try:
            inner = lane.executor.submit(job.spec, job.trial_dir)
        except AutoresearchError as error:
            job.fail(aborted(job.spec.trial_id) if self._closing else error)
            self._is_free(lane)
            return
        job.runs_on(lane.place, inner)
        stay = Stay(lane)
        inner.when_free(partial(self._left, stay, inner))
        inner.when_done(partial(self._ended, stay, job, inner))

    def _left(self, stay: Stay, inner: Job) -> None:
        """In a thread of the lane's, once its place is free: the next begins before what came of
        the trial is known."""
        if not inner.done():
            self._leave(stay)

    def _ended(self, stay: Stay, job: LanesJob, inner: Job) -> None:
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

    def _leave(self, stay: Stay) -> None:
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
            # Whatever a trial left there would keep it from running again.
            clear(job.trial_dir / RESULT_FILE)
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
            self._gone.add(lane)
            left = list(self._waiting) if self._all_gone else []
        for job in left:
            job.fail(lost)

    def _is_free(self, lane: Lane) -> None:
        with self._door:
            self._away.discard(lane)
            self._free.append(lane)
        self._fill()
