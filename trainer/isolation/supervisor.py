"""Run a trial in a sandboxed process, and always return.

The trial's process is forked by a fork server (:mod:`trainer.isolation.forkserver`), which reports
its end at once. Until then the supervisor polls it ten times a second: wall clock, memory held,
number of processes and threads, size of the log, and new lines of the curve. If its GPU shares the
machine's memory, the remaining memory is polled too. What ends a trial here is a ``status`` of its
result; a failure around it is a MachineryError.
"""

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
from trainer.isolation.messages import Driver, Ended, Said, ServerDied, StartTrial
from trainer.isolation.outcome import Ending, Stopped, aborted, judge
from trainer.isolation.process_tree import SWEEP_S, await_death, is_stopped, oom_kills
from trainer.isolation.trial_files import TrialFiles
from trainer.isolation.usage import TreeUsage, TrialTime, usage_below, world_bytes
from trainer.machine.host import shortage
from trainer.schema import CurvePoint, Measured, TrialFailed, TrialSpec

_POLL_S = 0.1
_GRACE_S = 1.0
"""Seconds between asking a trial to end and killing it."""
_OVERDUE_S = 4.0
"""Seconds after the grace in which a stopped server may continue. Then it is killed too."""
_REAP_S = SWEEP_S + 5.0
"""Seconds for the kernel to end what was killed, and for the server to report it."""
_GIB = 1 << 30


class Supervised:
    """One trial, to be run once."""

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
        """Prepare the trial.

        :param server: has no other running trial. It is closed if nothing less ends this one.
        :param groups: where a cgroup for it can be created, if anywhere.
        :param on_point: called with each line of the curve soon after it is written.
        :param cancelled: asked several times a second whether to end the trial.
        :param meminfo: /proc/meminfo.
        :raises TrialAborted: if it was canceled.
        :raises MachineryError: if it cannot be prepared.
        """
        if cancelled():
            raise aborted(spec.trial_id)
        self._server = server
        self._spec = spec
        self._on_point = on_point
        self._cancelled = cancelled
        self._meminfo = meminfo
        self._time = TrialTime(spec.limits.wall_s)
        self._usage = TreeUsage()
        self.pids: set[int] = set()
        """All processes of the trial that were seen."""
        self._trial = 0
        self._ending = Ending()
        self._result: Measured | TrialFailed | None = None
        uses_machines = spec.trainer.shared_memory and not server.has_world
        self._shared = shared_memory.own_files() if uses_machines else None
        self._oom_kills_before = oom_kills()
        self._group: TrialGroup | None = None
        self._files = TrialFiles(spec, trial_dir)
        try:
            if groups is not None:
                self._group = groups.make(spec.trial_id, spec.limits)
        except BaseException:
            self._close()
            raise

    def run(self) -> Measured | TrialFailed:
        """Run it in, and only in, its directory; return its result when nothing of it runs any
        more.

        :raises TrialAborted: if it was canceled before there was a result.
        :raises AutoresearchError: if the fork server died, or the trial's end says nothing about
            its config.
        """
        try:
            self._until_over()
            if self._shared is not None:
                shared_memory.sweep(self._shared)
            self._files.log.compact()
            self._tell_points()
            ending = self._ending
            if ending.stopped is None and self._group is not None:
                ending.stopped = self._stopped_by_kernel(self._group)
            killed = ending.ended.signal == signal.SIGKILL
            ending.oom_killer_struck = killed and oom_kills() != self._oom_kills_before
            self._result = judge(self._spec, self._files, ending)
            return self._result
        finally:
            self._close()

    @property
    def must_run_again(self) -> bool:
        """Whether the trial was suspended, so that its result may be due to that.

        A trial with a fixed number of steps is unaffected by suspension.
        """
        if self._time.still_s == 0.0:
            return False
        counts_time = self._spec.trainer.is_watched or self._spec.budget.unit == "seconds"
        return counts_time or isinstance(self._result, TrialFailed)

    def _close(self) -> None:
        if self._group is not None:
            self._group.close()
        self._files.close()

    def _until_over(self) -> None:
        """Start the trial and return when nothing of it runs any more."""
        group = None if self._group is None else str(self._group.directory)
        imports = self._spec.trainer.imports(self._spec.backend, self._spec.device)
        start = StartTrial(trial_dir=str(self._files.path), imports=imports, group=group)
        try:
            self._trial = self._server.start_trial(start, self._cancelled)
            self._time = TrialTime(self._spec.limits.wall_s)
            while not self._hear(min(_POLL_S, max(0.0, self._time.left_s))):
                # Somebody may have stopped the trial, or the server that would report its end.
                self._time.tick(lambda: is_stopped(self._trial) or is_stopped(self._server.pid))
                stopped = self._ending.stopped = self._check()
                if stopped is not None:
                    self._stop(_GRACE_S if stopped.cause in {"timeout", "aborted"} else 0.0)
                    break
        except ServerDied:
            self._kill_last_seen()
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

    def _hear(self, timeout_s: float) -> bool:
        """Process the server's next message, and return whether nothing of the trial runs any more.

        :raises ServerDied: if no more can come.
        """
        message = self._server.receive(timeout_s)
        match message:
            case Driver():
                self._ending.driver = message
            case Said():
                self._ending.said = message
            case Ended():
                self._ending.ended = message
        return isinstance(message, Ended)

    def _stopped_by_kernel(self, group: TrialGroup) -> Stopped | None:
        """Return which limit the trial exceeded between two polls."""
        limits, ended = self._spec.limits, self._ending.ended
        if ended.signal == signal.SIGKILL and limits.memory_gib is not None and group.oom_kills:
            why = f"over the limit of {limits.memory_gib:g} GiB"
            return Stopped("oom", f"out of host memory: {why}")
        if ended.exit_code != 0 and group.refused_tasks:
            return Stopped("killed", f"it started threads, over the limit of {limits.tasks}")
        return None

    def _check(self) -> Stopped | None:
        """Return why the trial must be ended now, if it must."""
        if self._time.left_s <= 0:
            wall_s = self._spec.limits.wall_s
            return Stopped("timeout", f"not done within the limit of {wall_s:g} s")
        self._files.log.trim()
        self._tell_points()
        if self._cancelled():
            return Stopped("aborted", "cancelled")
        usage = usage_below(self._server.pid)
        if self._trial in usage.pids or self._server.alive:
            # Otherwise the server has just died and its orphans are no longer below it: the
            # previous poll knows which processes to end.
            self._usage = usage
            self.pids.update(usage.pids)
        limits, usage = self._spec.limits, self._usage
        for count, limit, things in (
            (len(usage.pids), limits.processes, "processes"),
            (usage.threads, limits.tasks, "threads"),
        ):
            if count > limit:
                return Stopped("killed", f"{count} {things}, over the limit of {limit}")
        held_bytes = self._weigh()
        self._ending.peak_bytes = max(self._ending.peak_bytes, held_bytes)
        if limits.memory_gib is not None and held_bytes > limits.memory_gib * _GIB:
            held = f"{held_bytes / _GIB:.2f} GiB, over the limit of {limits.memory_gib:g} GiB"
            return Stopped("oom", f"out of host memory: {held}")
        driver = self._ending.driver
        if driver is not None and driver.is_unified:
            why = shortage(limits.reserve_gib, self._meminfo)
            return None if why is None else Stopped("oom", why)
        return None

    def _weigh(self) -> int:
        limit_gib = self._spec.limits.memory_gib
        limit = None if limit_gib is None else limit_gib * _GIB
        # Elsewhere the sandbox refuses the memory that no process shows.
        count_unmapped = self._spec.device.startswith("cuda") or self._spec.trainer.is_watched
        weighed = self._usage.weigh(limit, count_unmapped=count_unmapped)
        # The kernel's count includes memory that no process shows; the sum over processes includes
        # what was the server's before the fork, and so is the same with and without a cgroup.
        if self._group is not None:
            return max(weighed, self._group.held_bytes)
        if not self._spec.trainer.is_watched:
            return weighed
        if self._shared is not None:
            room = float("inf") if limit is None else limit - weighed
            weighed += shared_memory.added_bytes(self._server.pid, self._shared, room)
        return weighed + world_bytes(self._usage.pids)

    def _tell_points(self) -> None:
        for point in self._files.curve.read():
            self._on_point(point)

    def _stop(self, grace_s: float) -> None:
        """End the trial by any means; on return none of its processes is left."""
        self._server.stop_trial(grace_s)
        asked_at = time.monotonic()
        while (waited_s := time.monotonic() - asked_at - grace_s) < _REAP_S:
            if self._hear(_POLL_S):
                return
            self._files.log.trim()
            if waited_s > _OVERDUE_S and is_stopped(self._server.pid):
                break
        self._server.kill()
        self._kill_last_seen()
        self._ending.ended = Ended(signal=signal.SIGKILL)

    def _kill_last_seen(self) -> None:
        """Kill, without a server, the trial and its descendants of the last poll, or all in its
        cgroup."""
        if self._group is not None:
            self._group.kill()
        seen = {self._trial, *self._usage.pids} - {0}
        for pid in seen:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await_death(seen, timeout_s=2)
