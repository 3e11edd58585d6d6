"""What runs trials: an :class:`Executor` is handed a spec and gives back a :class:`Job`.

Values go in (a TrialSpec and the path of a directory) and values come out (points and a Finished),
so that the trial may as well run in another process or on another machine. Who wants several trials
at once submits several; who wants one and to wait for it calls :meth:`Executor.run`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from autoresearch.closing import Closing
from autoresearch.errors import MachineryError
from trainer.isolation.outcome import TrialAborted
from trainer.spec import CurvePoint, Measured, Place, TrialFailed, TrialSpec

__all__ = [
    "Executor",
    "Finished",
    "Job",
    "LaneLost",
    "SeveralMachines",
    "StillRunning",
    "TrialAborted",
]

LOOK_S = 0.1
"""Between two looks at a job: what a curve's points and a stop wait for at most."""
CANCEL_S = 15.0
"""A job that was cancelled ends within seconds; who leaves on an error waits no longer than this
for it."""


class StillRunning(TimeoutError):
    """The time given to :meth:`Job.result` is over, and the trial is not."""


class LaneLost(MachineryError):
    """What ran the trial died and took it along: its machine, its process there, its server. That
    says nothing about the trial, which may run again elsewhere."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial's one result. ``wall_s`` is from the request, or from when a place was free for it,
    to the result in hand."""

    result: Measured | TrialFailed
    wall_s: float
    place: Place | None = None
    """Where it ran; None where there is one place and it is here."""


class Job(Protocol):
    """A trial that was submitted. It goes on, its limits are kept, and it ends, whether or not
    anybody asks."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the trial has ended, or for so long; whether it has ended. None: however long."""
        ...

    def done(self) -> bool:
        """Whether the trial has ended, whatever came of it."""
        return self.wait(0)

    def result(self, timeout_s: float | None = None) -> Finished:
        """What came of it, once it has ended; the same at every call.

        :raises StillRunning: where that takes longer than ``timeout_s``.
        :raises TrialAborted: where it was cancelled before it had a result.
        :raises SpecError: where no trainer could run the spec.
        :raises CorpusError: where the corpus is not the one meant.
        :raises SandboxError: where the trial cannot be confined.
        :raises LaneLost: where what ran it died.
        :raises MachineryError: where the machinery failed; the trial counts for nothing.
        """
        ...

    def when_done(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once the trial has ended: once, from any thread, at once where
        it has. It is to be quick and to raise nothing. Who waits for the first of several jobs
        gives each the same one, which wakes him."""
        ...

    def when_free(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once the trial's place is free for the next, as
        :meth:`when_done` does: when it has ended, or as soon as nothing of it runs any more, while
        what came of it is still being found out. Where the place is lost with it, not before it has
        ended."""
        self.when_done(callback)

    def place(self) -> Place | None:
        """Where it runs or ran; None while it waits for a place, and where there is only one."""
        return None

    def points(self) -> tuple[CurvePoint, ...]:
        """The lines of the curve that have come since the last call, each once and in order. All
        have come when the trial has ended."""
        ...

    def cancel(self) -> None:
        """Have the trial ended, or never started; returns at once. What has ended stays as it is.
        When the job is done, none of the trial's processes is left."""
        ...


class Executor(Closing, Protocol):
    """The seam where other ways of running trials plug in. Who opens one closes it."""

    places: int = 1
    """Trials that run at once; what is submitted beyond them waits for its turn."""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        """Have a trial run as ``spec`` says, in and only in ``trial_dir``; returns at once.

        Jobs start in the order they were submitted in, as soon as there is a place for them. The
        trial's ``spec.json`` is on the disk before it starts.

        :raises MachineryError: where the executor is closed. Whatever else fails is the job's.
        """
        ...

    def make_ready(self, spec: TrialSpec, trial_dir: Path) -> None:
        """Do ahead what a trial that waits for a place will need; returns at once. It may still be
        submitted or not, here or elsewhere. Nobody has to call this, and it promises nothing."""
        return

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """Until ``wake`` is set, as by the end of a job (:meth:`Job.when_done`), or for so long. An
        executor whose trials take no real time moves its own clock on instead."""
        wake.wait(timeout_s)

    def describe(self) -> str:
        """How trials are confined and started, for the record and the screen."""
        ...

    def close(self) -> None:
        """Cancel what has not ended, and leave no process. A second call does nothing."""
        ...

    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        *,
        on_point: Callable[[CurvePoint], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Finished:
        """Submit a trial and wait for what comes of it.

        ``on_point`` is told each line of the curve soon after it is written; ``should_stop`` is
        asked several times a second, and once it says so the trial is cancelled. Where either
        raises, or a person interrupts, the trial is ended before that goes on.

        :raises AutoresearchError: as :meth:`submit` and :meth:`Job.result` say.
        """
        job = self.submit(spec, trial_dir)
        try:
            ended = False
            while not ended:
                ended = job.wait(LOOK_S)
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


@runtime_checkable
class SeveralMachines(Protocol):
    """What an executor on other machines says besides."""

    kind: str
    """Of their devices."""
    refused: dict[str, str]
    """Machines that will not do, by name, and why."""
