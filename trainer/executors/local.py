"""Run trials on this machine, as sandboxed child processes of this one."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from functools import partial
from pathlib import Path

from autoresearch.errors import MachineryError, SandboxError
from autoresearch.layout import RESULT_FILE
from trainer.executors.base import Executor, Finished, FutureJob, LaneLost
from trainer.isolation.forkserver_client import ForkServerClient
from trainer.isolation.kernel.cgroup import Groups
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.outcome import aborted
from trainer.isolation.scratch import clear
from trainer.isolation.supervisor import Supervised
from trainer.spec import CurvePoint, TrialSpec

_LOG = logging.getLogger(__name__)

ENTRY = "trainer.training.child:run_trial"
"""The entry point of a trial of the built-in trainer."""
COMMAND_ENTRY = "trainer.command.child:run_command"
"""The entry point of a trial whose spec names a command."""

_MOST_POINTS = 1 << 16
"""Points kept of a curve that is not read; the oldest are dropped."""


class OneByOne(Executor):
    """One trial at a time, in a thread of its own; further trials wait for their turn."""

    def __init__(self, name: str) -> None:
        """
        :param name: of the thread.
        """
        self._closing = threading.Event()
        self._lock = threading.Lock()
        """Held while a job is submitted and while the executor closes, which ends every job."""
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LocalJob:
        """See :meth:`Executor.submit`."""
        job = LocalJob(spec.trial_id)
        with self._lock:
            if self._closing.is_set():
                raise MachineryError("this executor is closed; create another to run more trials")
            run = self._thread.submit(self._run, job, spec, trial_dir.resolve(), time.monotonic())
        run.add_done_callback(lambda run: job.future.cancel() if run.cancelled() else None)
        return job

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._lock:
            self._closing.set()
        self._thread.shutdown(cancel_futures=True)

    def _run(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, asked_at: float) -> None:
        """Run the trial unless its job is cancelled. Runs in the executor's thread."""
        if job.future.set_running_or_notify_cancel():
            self._attempt(job, spec, trial_dir, asked_at)

    @abstractmethod
    def _attempt(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, asked_at: float) -> None:
        """Run the trial and settle its job. Runs in the executor's thread."""

    def _is_cancelled(self, job: LocalJob) -> bool:
        return job.cancelled.is_set() or self._closing.is_set()


class LocalExecutor(OneByOne):
    """One trial at a time, under a fork server; further trials wait for their turn.

    For several at once use several executors.

    One thread supervises the trial, so that its limits hold whatever the caller does, and then
    reads its result.
    A trial that ends by a failure of the machinery, or that stood still, runs a second time before
    its end counts.
    If the fork server dies (something killed it), its trial dies too, which is a MachineryError;
    the next trial gets a new server.
    """

    def __init__(
        self,
        *,
        allow_unsandboxed: bool = False,
        fork_server: bool = True,
        environ: Mapping[str, str] | None = None,
        layers: Layers | None = None,
        entry: str = ENTRY,
        root: Path = Path("/"),
        cores: Sequence[int] = (),
    ) -> None:
        """Start the fork server, without waiting until it is ready.

        :param allow_unsandboxed: if this kernel cannot confine a trial, continue and report that.
        :param fork_server: import torch once, not in every trial.
        :param environ: the variables that the allowlist filters; None: this process's environment.
        :param layers: the means to confine trials; None: all that the kernel has.
        :param entry: ``module:function`` that a trial runs.
        :param cores: the processors that trials may use. Trials have as many threads unless their
            specs give another number. Empty: all processors.
        :param root: the directory below which /proc/meminfo and a GPU driver's files are found.
        :raises SandboxError: if this kernel cannot confine a trial and that is not allowed.
        """
        self._layers = Layers.detect() if layers is None else layers
        if not self._layers.confine and not allow_unsandboxed:
            raise SandboxError(
                "this kernel has no Landlock, so trials cannot be confined to their directories;"
                " use Linux 5.13 or newer with Landlock enabled, or accept it with loop"
                " --allow-unsandboxed; in a campaign that exists, with allow_unsandboxed = true in"
                " its campaign.toml"
            )
        super().__init__("supervisor")
        self._warm = fork_server
        self._root = root
        self._groups = Groups.take()  # first, since the fork server starts in this process's group
        self._start_server = partial(
            ForkServerClient,
            entry=entry,
            warm=fork_server,
            layers=self._layers,
            environ=environ,
            root=root,
            cores=tuple(cores),
        )
        self._server = self._start_server()

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        group = ", a cgroup a trial" if self._groups is not None else ""
        return f"{self._layers.describe()}{group}, {'fork server' if self._warm else 'cold start'}"

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        super().close()
        self._server.close()

    def _attempt(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, asked_at: float) -> None:
        """Run the trial once, then read its result. Runs in the executor's thread."""
        try:
            trial = self._supervised(job, spec, trial_dir)
        except BaseException as error:  # noqa: BLE001 (the job's result() raises it)
            job.future.set_exception(error)
            return
        job.is_free()
        self._settle(job, trial, spec, trial_dir, asked_at)

    def _supervised(self, job: LocalJob, spec: TrialSpec, trial_dir: Path) -> Supervised:
        """Run the trial and return it once none of its processes runs."""
        if not self._server.alive:
            self._server.close()
            self._server = self._start_server()
        try:
            trial = Supervised(
                self._server,
                spec,
                trial_dir,
                groups=self._groups,
                on_point=job.arrived.append,
                cancelled=partial(self._is_cancelled, job),
                meminfo=self._root / "proc" / "meminfo",
            )
            trial.run()
        except MachineryError as error:
            if self._server.alive:
                raise
            raise LaneLost(str(error)) from error
        return trial

    def _settle(
        self, job: LocalJob, trial: Supervised, spec: TrialSpec, trial_dir: Path, asked_at: float
    ) -> None:
        """Read the trial's result and settle its job."""
        try:
            finished = Finished(trial.result(), time.monotonic() - asked_at)
            why = "it, or this machine, stood still" if trial.must_run_again else ""
        except MachineryError as error:
            if not self._runs_again(job, spec, trial_dir, str(error)):
                job.future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 (the job's result() raises it)
            job.future.set_exception(error)
        else:
            if not (why and self._runs_again(job, spec, trial_dir, why)):
                job.future.set_result(finished)

    def _runs_again(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, why: str) -> bool:
        """Run a trial a second time, if it may, since its end says nothing about its config.

        Return whether it runs again.
        """
        with self._lock:
            if job.has_run_twice or self._is_cancelled(job):
                return False
            job.has_run_twice = True
            job.arrived.clear()
            with contextlib.suppress(OSError):
                clear(trial_dir / RESULT_FILE)
            again = self._thread.submit(self._attempt, job, spec, trial_dir, time.monotonic())
        again.add_done_callback(lambda again: job.give_up() if again.cancelled() else None)
        _LOG.warning("trial %s runs once more: %s", spec.trial_id, why)
        return True


class LocalJob(FutureJob):
    """A trial of a :class:`LocalExecutor`, or of a lane on another machine."""

    def __init__(self, trial_id: str) -> None:
        super().__init__(trial_id)
        self.cancelled = threading.Event()
        self.has_run_twice = False
        self.arrived: deque[CurvePoint] = deque(maxlen=_MOST_POINTS)
        """Points that are not read yet."""
        self._free: futures.Future[None] = futures.Future()

    def when_free(self, callback: Callable[[], None]) -> None:
        """See :meth:`Job.when_free`."""
        self.future.add_done_callback(lambda _future: self.is_free())
        self._free.add_done_callback(lambda _free: callback())

    def is_free(self) -> None:
        """Mark its place as free."""
        with contextlib.suppress(futures.InvalidStateError):
            self._free.set_result(None)

    def give_up(self) -> None:
        """End the job as aborted, since the executor closed before its second run."""
        self.future.set_exception(aborted(self._trial_id))

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        return tuple(self.arrived.popleft() for _ in range(len(self.arrived)))

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        self.cancelled.set()
        self.future.cancel()
