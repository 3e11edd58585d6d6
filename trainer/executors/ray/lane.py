"""Use one lane on another machine as an executor of one place here."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent import futures
from functools import partial
from pathlib import Path

from autoresearch.errors import AutoresearchError, MachineryError
from trainer.executors.base import Executor, Finished, LaneLost
from trainer.executors.local import LocalJob
from trainer.executors.ray.remote_trial import SILENCE_S, OpenLane, RemoteTrial
from trainer.isolation.outcome import aborted
from trainer.isolation.trial_files import TrialFiles
from trainer.spec import TrialSpec

LEASE_S = 20.0
"""Time after which a node ends a trial that its driver has not asked about, so that a driver that
is killed or disconnected leaves none running."""
_BACK_S = 3600.0
"""How long a lane waits for its node to return; its trials go to other lanes meanwhile."""
_KNOCK_S = 5.0
"""Interval between two checks whether the node is back."""


class RayLane(Executor):
    """One trial at a time on another machine; further trials wait for their turn.

    One thread supervises the trial. Only this thread writes the trial's directory here, and only
    the answers to its own requests. So late answers of a lost lane are ignored. After a loss the
    next trial reopens the lane, if its node is back.
    """

    def __init__(self, first: OpenLane, reopen: Callable[[], OpenLane]) -> None:
        """
        :param reopen: opens the lane again; raises LaneLost if its node is gone.
        """
        self._lane: OpenLane | None = first
        self._reopen = reopen
        self.place = first.place
        self._described = first.described
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix=first.place.lane)

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return f"ray {self.place.lane}: {self._described}"

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LocalJob:
        """See :meth:`Executor.submit`."""
        job = LocalJob(spec.trial_id)
        run = partial(self._run, job, spec, trial_dir.resolve(), time.monotonic())
        with self._lock:
            if self._closing.is_set():
                raise MachineryError("this executor is closed; create another to run more trials")
            job.future = self._thread.submit(run)
        return job

    def reopen(self) -> bool:
        """Wait, after a loss, until the lane is open again; return whether it is.

        Its node may be away for minutes, without power or network. The wait happens here, so that
        no trial waits for the node.
        """
        give_up_at = time.monotonic() + _BACK_S
        while not self._closing.is_set() and time.monotonic() < give_up_at:
            with contextlib.suppress(AutoresearchError, RuntimeError):  # closed meanwhile
                return self._thread.submit(self._opened).result() is not None
            self._closing.wait(_KNOCK_S)
        return False

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._lock:
            self._closing.set()
        self._thread.shutdown(cancel_futures=True)
        lane, self._lane = self._lane, None
        if lane is not None:
            with contextlib.suppress(LaneLost):
                lane.remote.ask("close", within_s=SILENCE_S)
            lane.remote.end()

    # --- in the lane's own thread ---------------------------------------------------------------

    def _run(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, asked_at: float) -> Finished:
        cancelled = partial(self._is_cancelled, job)
        if cancelled():
            raise aborted(spec.trial_id)
        files = TrialFiles(spec, trial_dir)
        try:
            lane = self._opened()
            try:
                result = RemoteTrial(lane, spec, files, job, cancelled).run()
            except LaneLost:
                self._lane = None
                lane.remote.end()
                raise
        finally:
            files.close()
        return Finished(result, time.monotonic() - asked_at, self.place)

    def _is_cancelled(self, job: LocalJob) -> bool:
        return job.cancelled.is_set() or self._closing.is_set()

    def _opened(self) -> OpenLane:
        if self._lane is None:
            self._lane = self._reopen()
        return self._lane
