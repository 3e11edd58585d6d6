"""Run trials on lanes, one at a time on each: places on this machine or on others.

Each lane has a thread, which takes the next waiting trial, runs it, and settles its job. On this
machine each lane has some of its cores, or one of its GPUs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoresearch.campaign_files import make_folder, replace_file
from autoresearch.closing import Closing
from autoresearch.errors import MachineryError, SettingsError
from autoresearch.layout import LANE_FILE, RESULT_FILE
from autoresearch.words import counted
from trainer.executors.base import Executor, Finished, Job, LaneLost, Meter
from trainer.isolation.scratch import clear
from trainer.machine.environment import named_gpus, with_gpu
from trainer.machine.gpu import gpu_count
from trainer.schema import CurvePoint, Measured, Place, TrialFailed, TrialSpec

MOST_LOSSES = 2
"""Most times a trial runs again because its lane died."""


class Lane(Protocol):
    """A place where one trial runs at a time. Only the lane's own thread calls it."""

    place: Place | None
    """Its name for the journal and the screen; None for the only place, on this machine."""
    gpu: str | None = None
    """How CUDA_VISIBLE_DEVICES names its own GPU; None if it has none of its own."""
    meter: Meter | None = None
    """Measures what its trials use of the device; None: nothing does."""

    @abstractmethod
    def describe(self) -> str:
        """See :meth:`Executor.describe`."""

    @abstractmethod
    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
    ) -> Measured | TrialFailed:
        """Run a trial and return its result once none of its processes runs.

        :param on_point: called with each point of the curve.
        :param cancelled: asked several times a second whether to end the trial.
        :raises LaneLost: if the lane died, and the trial with it.
        :raises AutoresearchError: see :meth:`Job.result`.
        """

    def reopen(self, closing: threading.Event) -> bool:
        """Wait, after a loss, until the lane takes trials again, and return whether it does.

        :param closing: set when the wait is to end.
        """
        return True

    @abstractmethod
    def close(self) -> None:
        """Release what the lane holds."""


class Lanes(Executor):
    """Several lanes as one executor.

    Trials take the first free lane, in the order of their submissions. A trial whose lane is lost
    runs again, before the waiting trials, on the first other lane that is free, a limited number of
    times. The lost lane gets trials again once it is repaired. If no lane can
    be repaired, the waiting trials fail.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        most_losses: int = MOST_LOSSES,
        closing: Closing | None = None,
    ) -> None:
        """
        :param lanes: open lanes, which close with this executor.
        :param closing: what else closes with it, after them.
        :param most_losses: how often a trial may run again.
        """
        self._most_losses = most_losses
        self.places = len(lanes)
        self._lanes = tuple(lanes)
        self._also_closing = closing
        self._waiting: deque[Job] = deque()
        self._away = set[Lane]()
        """Lanes that are lost, until they are repaired."""
        self._gone: list[LaneLost] = []
        """How lanes were lost that are not reopened."""
        self._changed = threading.Condition()
        """Guards all of the above; no lane is called while it is held."""
        self._closing = threading.Event()
        self.on_loss: Callable[[str], None] = lambda _: None
        """Tells a person which lane was lost. Called in a thread of the lane."""
        self._threads = [
            threading.Thread(target=self._serve, args=(lane,), name="lane", daemon=True)
            for lane in lanes
        ]
        for thread in self._threads:
            thread.start()

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._lanes[0].describe()

    def meter_by(self, choose: Callable[[str | None], Meter]) -> None:
        """See :meth:`Executor.meter_by`."""
        for lane in self._lanes:
            lane.meter = choose(lane.gpu)

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        """See :meth:`Executor.submit`."""
        job = Job(spec, trial_dir.resolve())
        with self._changed:
            if self._closing.is_set():
                raise MachineryError("this executor is closed; create another to run more trials")
            if len(self._gone) == self.places:
                how = "; ".join(map(str, self._gone))
                raise LaneLost(f"every lane is lost ({how}); see what became of their machines")
            self._waiting.append(job)
            self._changed.notify()
        return job

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._changed:
            self._closing.set()
            left = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for job in left:
            job.cancel()
        for thread in self._threads:
            thread.join()
        if self._also_closing is not None:
            self._also_closing.close()

    # --- in the lanes' threads -------------------------------------------------------------------

    def _serve(self, lane: Lane) -> None:
        """Run trials on a lane until the executor closes or the lane is gone for good."""
        try:
            while (job := self._next(lane)) is not None:
                try:
                    self._run(lane, job)
                except LaneLost as lost:
                    self._repeat(lane, job, lost)
                    if not self._reopen(lane, lost):
                        return
                except BaseException as error:  # noqa: BLE001 (the job's result() raises it)
                    job.fail(error)
        finally:
            lane.close()

    def _next(self, lane: Lane) -> Job | None:
        """Wait for a trial that may run on the lane; return None if the executor closes."""
        with self._changed:
            while not self._closing.is_set():
                working = set(self._lanes) - self._away
                for job in self._waiting:
                    # It returns to a lane that lost it only if every other working lane did too.
                    if lane not in job.lost_on or working <= set(job.lost_on):
                        break
                else:
                    self._changed.wait()
                    continue
                self._waiting.remove(job)
                if job.begin(lane.place):
                    return job
        return None

    def _run(self, lane: Lane, job: Job) -> None:
        if lane.place is not None:
            with contextlib.suppress(OSError):  # for viewers; the trial can do without
                make_folder(job.trial_dir)
                replace_file(job.trial_dir, LANE_FILE, lane.place.lane)
        began_s = time.monotonic()

        def cancelled() -> bool:
            return job.cancelled.is_set() or self._closing.is_set()

        result = lane.run(job.spec, job.trial_dir, job.arrive, cancelled)
        job.succeed(Finished(result, time.monotonic() - began_s, lane.place))

    def _repeat(self, lane: Lane, job: Job, lost: LaneLost) -> None:
        """Report a lost lane, and let its trial wait for a lane again, if it may."""
        with self._changed:
            self._away.add(lane)
            left = self.places - len(self._away)
        rest = f"{counted(left, 'lane')} left" if left else "the loop waits until one is back"
        self.on_loss(f"{lost}; {rest}")
        with contextlib.suppress(OSError):
            # A result file that the trial left would keep it from running again.
            clear(job.trial_dir / RESULT_FILE)
        with self._changed:
            job.lost_on.append(lane)
            if len(job.lost_on) > self._most_losses or self._closing.is_set():
                job.fail(lost)
            else:
                job.wait_again()
                self._waiting.appendleft(job)
            self._changed.notify_all()

    def _reopen(self, lane: Lane, lost: LaneLost) -> bool:
        """Wait for a lost lane's repair, and return whether it takes trials again."""
        is_back = lane.reopen(self._closing)
        with self._changed:
            if is_back:
                self._away.discard(lane)
                return True
            self._gone.append(lost)
            left = list(self._waiting) if len(self._gone) == self.places else []
        for job in left:
            job.fail(lost)
        return False


# --- the lanes of this machine -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spot:
    """A lane's share of the machine."""

    name: str
    cores: tuple[int, ...] = ()
    gpu: str | None = None
    """How CUDA_VISIBLE_DEVICES names its GPU; None on a CPU."""

    @property
    def variables(self) -> Mapping[str, str] | None:
        """The environment from which its trials' variables are taken; None: this process's."""
        return None if self.gpu is None else with_gpu(self.gpu)


def spots(lanes: int, device: str) -> list[Spot]:
    """Return the shares of this machine for ``lanes`` lanes of a campaign on ``device``.

    On a CPU all lanes have the same number of cores, so that their trials sum in the same order.
    With more lanes than cores, some lanes share a core. On GPUs each lane has its own.

    :raises SettingsError: if there are fewer GPUs, or the device names one of them.
    """
    if device == "cpu":
        return [Spot(str(n), cores) for n, cores in enumerate(shares(usable_cores(), lanes))]
    if device != "cuda":
        raise SettingsError(
            f"--lanes {lanes} wants a GPU for each lane, and the campaign's device is {device}, "
            "which is one; leave --lanes out, or begin a campaign with --device cuda"
        )
    names = visible_gpus()
    if lanes > len(names):
        raise SettingsError(
            f"--lanes {lanes} wants as many GPUs, and {counted(len(names), 'GPU')} can be seen "
            f"here; ask for --lanes {max(1, len(names))}"
        )
    return [Spot(str(n), gpu=name) for n, name in enumerate(names[:lanes])]


def usable_cores() -> list[int]:
    """Return the processors that this process may use."""
    return sorted(os.sched_getaffinity(0))


def shares(cores: Sequence[int], lanes: int) -> list[tuple[int, ...]]:
    """Deal the same number of cores to each lane; a remainder is left to other processes."""
    each = max(1, len(cores) // lanes)
    return [
        tuple(cores[(lane * each + n) % len(cores)] for n in range(each)) for lane in range(lanes)
    ]


def visible_gpus() -> list[str]:
    """Return how CUDA_VISIBLE_DEVICES names each GPU that this process may use."""
    named = named_gpus()
    return [str(number) for number in range(gpu_count())] if named is None else named
