"""Runs a trial in a sandboxed process of its own, and always comes back.

The trial's process is forked by a fork server (:mod:`trainer.isolation.forkserver`), which reports
its end the moment it happens. Between start and end the supervisor looks at it ten times a second:
wall clock, memory held, number of processes and threads, size of the log, new lines of the curve;
and where its GPU shares the machine's memory, what is left of that. What ends a trial here is a
``status`` of its result; what fails around it is a MachineryError."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from autoresearch.errors import MachineryError
from trainer.isolation.forkserver_client import ForkServerClient, GivenUp
from trainer.isolation.kernel import shared_memory
from trainer.isolation.kernel.cgroup import Groups, TrialGroup
from trainer.isolation.messages import Driver, Ended, Said, ServerDied, Start
from trainer.isolation.outcome import Ending, Stopped, aborted, judge
from trainer.isolation.process_tree import await_death, is_stopped, oom_kills
from trainer.isolation.reaper import SWEEP_S
from trainer.isolation.trial_files import TrialFiles
from trainer.isolation.weighing import TreeUsage, usage_below
from trainer.machine.host_memory import HostWatch
from trainer.machine.standstill import TrialTime
from trainer.spec import CurvePoint, Measured, TrialFailed, TrialSpec

_COMPILER_MODULES = ("torch._dynamo", "torch._inductor.compile_fx")
"""What compiling imports: some seconds, which the fork server spends once."""
_OUR_MODULES = "trainer.command.starting:find_our_modules"
_COMPILER_KEYS = "trainer.backends.code_keys:compute"
_LOOK_S = 0.1
_GRACE_S = 1.0
"""Between asking a trial to end and making it."""
_OVERDUE_S = 4.0
"""After the grace, for a server that somebody stopped to go on. Then it is itself ended."""
_BURIAL_S = SWEEP_S + 5.0
"""For the kernel to take apart what was killed, and the server to report it."""
_GIB = 1 << 30


class Supervised:
    """One trial. Its place is free once :meth:`run` returns; what came of it takes a moment more,
    in which the next may run already."""

    def __init__(
        self,
        server: ForkServerClient,
        spec: TrialSpec,
        trial_dir: Path,
        *,
        groups: Groups | None,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
        meminfo: Path,
    ) -> None:
        """
        :param server: has no other trial that runs meanwhile. It is closed where nothing less ends
            this one.
        :param groups: where a cgroup for it can be made, if anywhere.
        :param on_point: told each line of the curve soon after it is written.
        :param cancelled: asked several times a second whether to end the trial.
        :param meminfo: /proc/meminfo.
        :raises TrialAborted: where it was cancelled.
        :raises MachineryError: where it cannot be prepared.
        """
        if cancelled():
            raise aborted(spec.trial_id)
        self._spec = spec
        self._files = TrialFiles(spec, trial_dir)
        self._group: TrialGroup | None = None
        self._result: Measured | TrialFailed | None = None
        declared = spec.command is not None and spec.command.shared_memory
        self._shared = shared_memory.own_files() if declared else None
        try:
            host = HostWatch(spec.limits.reserve_gib, meminfo)
            if groups is not None:
                self._group = groups.make(spec.trial_id, spec.limits)
            self._watch = _Watch(server, spec, self._files, self._group, host, on_point, cancelled)
        except BaseException:
            self._close()
            raise

    def run(self) -> None:
        """In, and only in, its directory; return when nothing of it runs any more.

        :raises TrialAborted: where it was cancelled before it started.
        :raises MachineryError: where the fork server died.
        """
        try:
            self._watch.until_over()
        except BaseException:
            self._close()
            raise
        if self._spec.command is not None:
            # Perhaps checkpoints: the disk is to have room for those of one trial a lane.
            self._files.clear_scratch()
        if self._shared is not None:
            shared_memory.sweep(self._shared)

    def result(self) -> Measured | TrialFailed:
        """What came of it, once, and when nothing of it is left. No other thread is needed, and
        none is in the way.

        :raises TrialAborted: where it was cancelled before there was a result.
        :raises AutoresearchError: where the trial's end says nothing about its config.
        """
        try:
            self._result = judge(self._spec, self._files, self._watch.ending())
        finally:
            self._close()
        return self._result

    @property
    def must_run_again(self) -> bool:
        """Whether the trial stood still, so that its result may be due to that.

        A count of steps is not: such a trial does the same however long it stood still.
        """
        if self._watch.time.still_s == 0.0:
            return False
        counts_time = self._spec.command is not None or self._spec.budget.unit == "seconds"
        return counts_time or isinstance(self._result, TrialFailed)

    def _close(self) -> None:
        if self._group is not None:
            self._group.close()
        self._files.close()


def _ahead(spec: TrialSpec) -> tuple[str, ...]:
    """What trials like this one would each import and compute."""
    if spec.command is not None:
        return (*spec.command.preload, _OUR_MODULES) if spec.command.main else ()
    modules = _COMPILER_MODULES if spec.compile else ()
    return (*modules, _COMPILER_KEYS) if spec.makes_code else ()


class _Watch:
    """One trial from its start to its end."""

    def __init__(
        self,
        server: ForkServerClient,
        spec: TrialSpec,
        files: TrialFiles,
        group: TrialGroup | None,
        host: HostWatch,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._server = server
        self._spec = spec
        self._files = files
        self._group = group
        self._host = host
        self._on_point = on_point
        self._cancelled = cancelled
        self._usage = TreeUsage()
        self._peak_bytes = 0
        self._trial = 0
        self._driver: Driver | None = None
        """What the trial said last of its GPU's driver."""
        self._said: Said | None = None
        """What the trial's process reported of itself."""
        self._ended: Ended | None = None
        self._stopped: Stopped | None = None
        self.time = TrialTime(spec.limits.wall_s)
        self._oom_kills_before: int | None = None

    def until_over(self) -> None:
        """Start the trial and return when nothing of it runs any more.

        :raises TrialAborted: where it was cancelled before it started.
        :raises MachineryError: where the fork server died.
        """
        self._oom_kills_before = oom_kills()
        try:
            self._trial = self._server.start_trial(self._start(), self._cancelled)
            self.time = TrialTime(self._spec.limits.wall_s)
            self._attend()
        except ServerDied:
            self._end_what_was_seen()
            raise MachineryError(
                f"the fork server died ({self._server.last_words()}) during trial"
                f" {self._spec.trial_id}; run the trial again"
            ) from None
        except GivenUp:
            self._server.close()
            raise aborted(self._spec.trial_id) from None
        except BaseException:  # of this code or the system's: leave nothing behind
            self._server.close()
            raise

    def ending(self) -> Ending:
        """Return all that is known of its end, after :meth:`until_over`."""
        ended, stopped = self._ended, self._stopped
        assert ended is not None, "the trial has ended"
        self._files.settle()
        self._files.log.compact()
        self._tell_points()
        if stopped is None and self._group is not None:
            stopped = self._stopped_by_kernel(self._group, ended)
        struck = ended.signal == signal.SIGKILL and oom_kills() != self._oom_kills_before
        return Ending(ended, stopped, self._peak_bytes, struck, self._driver, self._said)

    def _hear(self, timeout_s: float) -> bool:
        """What the server says next of the trial; whether nothing of it runs any more.

        :raises ServerDied: where it can say nothing.
        """
        message = self._server.receive(timeout_s)
        if isinstance(message, Driver):
            self._driver = message
        elif isinstance(message, Said):
            self._said = message
        elif isinstance(message, Ended):
            self._ended = message
        return isinstance(message, Ended)

    def _stopped_by_kernel(self, group: TrialGroup, ended: Ended) -> Stopped | None:
        """What the trial had too much of between two looks."""
        limits = self._spec.limits
        if ended.signal == signal.SIGKILL and limits.memory_gib is not None and group.oom_kills:
            return Stopped("oom", f"memory was over the limit of {limits.memory_gib:g} GiB")
        if ended.exit_code != 0 and group.refused_tasks:
            return Stopped("killed", f"it started threads, over the limit of {limits.tasks}")
        return None

    def _start(self) -> Start:
        group = None if self._group is None else str(self._group.directory)
        return Start(
            trial_dir=str(self._files.path),
            imports=_ahead(self._spec),
            group=group,
        )

    def _attend(self) -> None:
        """Look at the trial until it is over or must be ended."""
        while not self._hear(min(_LOOK_S, max(0.0, self.time.left_s))):
            self.time.tick(self._is_stopped)
            stopped = self._look()
            if stopped is not None:
                gentle = stopped.cause in {"timeout", "aborted"}
                self._stopped = stopped
                self._stop(_GRACE_S if gentle else 0.0)
                return

    def _is_stopped(self) -> bool:
        """Whether somebody has stopped the trial, or the server that would report its end."""
        return is_stopped(self._trial) or is_stopped(self._server.pid)

    def _look(self) -> Stopped | None:
        """Why the trial must be ended now, if it must."""
        limits = self._spec.limits
        if self.time.left_s <= 0:
            return Stopped("timeout", f"not done within the limit of {limits.wall_s:g} s")
        self._files.log.trim()
        self._tell_points()
        if self._cancelled():
            return Stopped("aborted", "cancelled")
        usage = usage_below(self._server.pid)
        if self._trial in usage.pids or self._server.alive:
            # Else the server has just died and what it left is no longer below it: the look
            # before is the one that knows whom to end.
            self._usage = usage
        return self._over_a_limit()

    def _over_a_limit(self) -> Stopped | None:
        """What the trial has too much of, if it has."""
        limits, usage = self._spec.limits, self._usage
        for count, limit, things in (
            (len(usage.pids), limits.processes, "processes"),
            (usage.threads, limits.tasks, "threads"),
        ):
            if count > limit:
                return Stopped("killed", f"{count} {things}, over the limit of {limit}")
        held_bytes = self._weigh()
        self._peak_bytes = max(self._peak_bytes, held_bytes)
        if limits.memory_gib is not None and held_bytes > limits.memory_gib * _GIB:
            held = f"{held_bytes / _GIB:.2f} GiB of memory"
            return Stopped("oom", f"{held}, over the limit of {limits.memory_gib:g} GiB")
        if self._driver is not None and self._driver.is_unified:
            shortage = self._host.shortage()
            return None if shortage is None else Stopped("oom", shortage)
        return None

    def _weigh(self) -> int:
        limit_gib = self._spec.limits.memory_gib
        weighed = self._usage.weigh(
            None if limit_gib is None else limit_gib * _GIB,
            on_gpu=self._spec.device.startswith("cuda"),
        )
        # The kernel's count has what no process shows; theirs has what was the server's before the
        # fork, and so is the same with and without a cgroup.
        if self._group is not None:
            return max(weighed, self._group.held_bytes)
        is_command = self._spec.command is not None
        return weighed + (shared_memory.held_bytes(self._trial) if is_command else 0)

    def _tell_points(self) -> None:
        for point in self._files.curve.read():
            self._on_point(point)

    def _stop(self, grace_s: float) -> None:
        """End the trial; on return nothing of it is left, whatever it takes."""
        self._server.stop_trial(grace_s)
        asked_at = time.monotonic()
        while (waited_s := time.monotonic() - asked_at - grace_s) < _BURIAL_S:
            self._hear(_LOOK_S)
            if self._ended is not None:
                return
            self._files.log.trim()
            if waited_s > _OVERDUE_S and is_stopped(self._server.pid):
                break
        self._server.kill()
        self._end_what_was_seen()
        self._ended = Ended(signal=signal.SIGKILL)

    def _end_what_was_seen(self) -> None:
        """Without a server: kill the trial and the descendants it had at the last look, all of them
        where they are in a cgroup."""
        if self._group is not None:
            self._group.kill()
        seen = {self._trial, *self._usage.pids} - {0}
        for pid in seen:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await_death(seen, timeout_s=2)
