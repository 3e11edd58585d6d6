"""Implement the product's interface for running trials, with a world in place of a trainer."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.files import replace_file
from autoresearch.layout import CURVE_FILE
from tests.support.simulated.world import World
from trainer.executors.base import Executor, Finished, Job
from trainer.isolation.outcome import aborted
from trainer.isolation.trial_files import TrialFiles
from trainer.schema import CurvePoint, Place, TrialOk, TrialSpec

TURNS = 20
"""Turns of the event loop in which all that a trial's end starts has begun."""


class SimulatedExecutor(Executor):
    """Run trials that take no real time, and report the simulated time they take.

    With one place a trial ends as soon as it is submitted. With several, trials end in the order of
    their simulated end times: once all wait for a trial, the clock advances to the next end.

    Each trial leaves the files of a real one, so that curves are read and interrupted nights
    resumed as usual.
    """

    def __init__(self, world: World, places: int = 1) -> None:
        self.places = places
        self.now_s = 0.0
        """The simulated clock, used if there are several places."""
        self._world = world
        self._lock = threading.Lock()
        self._closed = False
        self._free = [str(lane) for lane in range(places)]
        self._waiting: deque[SimulatedJob] = deque()
        self._running: list[tuple[float, int, SimulatedJob]] = []
        self._started = 0
        self._advances = 0

    def submit(self, spec: TrialSpec, trial_dir: Path) -> SimulatedJob:
        with self._lock:
            if self._closed:
                raise MachineryError("this executor is closed; create another to run more trials")
        job = SimulatedJob(spec, trial_dir, lambda: self._run(spec, trial_dir), self._gives_up)
        if self.places == 1:
            job.start(None)
            job.end()
        else:
            self._waiting.append(job)
            self._fill()
        return job

    async def wait(self, ended: asyncio.Future[Finished], timeout_s: float) -> None:
        """Advance the clock once everything that waits for nothing else has gone on."""
        advances = self._advances
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if ended.done() or self._advances != advances:
                return
        self._advances += 1
        self.advance()

    def advance(self) -> None:
        """Go to the next end of a trial, if one runs."""
        if not self._running:
            return
        self.now_s, _, job = heapq.heappop(self._running)
        self._free.append(job.lane)
        self._fill()
        job.end()

    def describe(self) -> str:
        return f"simulated in the world {self._world.name}"

    def close(self) -> None:
        with self._lock:
            self._closed = True
        for job in (*self._waiting, *(job for _, _, job in self._running)):
            job.cancel()

    def _gives_up(self, job: SimulatedJob) -> None:
        """Free the lane of a cancelled trial at once."""
        left = [one for one in self._running if one[2] is not job]
        if len(left) < len(self._running) and not self._closed:
            heapq.heapify(left)
            self._running = left
            self._free.append(job.lane)
            self._fill()

    def _fill(self) -> None:
        while self._free and self._waiting:
            job = self._waiting.popleft()
            if not job.done():
                lane = min(self._free)
                self._free.remove(lane)
                self._started += 1
                ends_s = self.now_s + job.start(Place(lane=lane))
                heapq.heappush(self._running, (ends_s, self._started, job))

    def _run(self, spec: TrialSpec, trial_dir: Path) -> tuple[Finished, tuple[CurvePoint, ...]]:
        files = TrialFiles(spec, trial_dir)
        try:
            result, points = self._world.outcome(spec)
            lines = b"".join(point.model_dump_json().encode() + b"\n" for point in points)
            replace_file(trial_dir / CURVE_FILE, lines)
            files.write_result(result)
        finally:
            files.close()
        if isinstance(result, TrialOk):
            took_s = result.train_s
        else:
            took_s = points[-1].elapsed_s if points else self._world.failure_s
        return Finished(result, took_s), points


class SimulatedJob(Job):
    """A trial. Only a :class:`SimulatedExecutor` creates one."""

    def __init__(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        run: Callable[[], tuple[Finished, tuple[CurvePoint, ...]]],
        gives_up: Callable[[SimulatedJob], None],
    ) -> None:
        super().__init__(spec, trial_dir)
        self.lane = ""
        self._run = run
        self._gives_up = gives_up
        self._to_come: Finished | AutoresearchError | None = None
        self._later: tuple[CurvePoint, ...] = ()

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Job.wait`. The executor's clock ends trials; this call does not block."""
        return super().wait(0)

    def cancel(self) -> None:
        if not self.done():
            self.fail(aborted(self.spec.trial_id))
            self._gives_up(self)

    # --- for its executor -------------------------------------------------------------------------

    def start(self, place: Place | None) -> float:
        """Run the trial, and return the simulated seconds it takes."""
        self.begin(place)
        self.lane = "" if place is None else place.lane
        try:
            finished, self._later = self._run()
        except AutoresearchError as error:
            self._to_come = error
            return 0.0
        self._to_come = replace(finished, place=place)
        return finished.wall_s

    def end(self) -> None:
        """Publish the result once its time is over."""
        if self.done():
            return
        for point in self._later:
            self.arrive(point)
        if isinstance(self._to_come, Finished):
            self.succeed(self._to_come)
        else:
            assert self._to_come is not None, "it was started"
            self.fail(self._to_come)
