"""Reap every process that ends below the fork server, and kill what a trial leaves behind.

As a subreaper the fork server inherits every process that a trial orphans, in any session. So
everything of a trial is below a child of the server, and when nothing is left the trial has ended.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time

from trainer.isolation.messages import Ended
from trainer.isolation.process_tree import children

SWEEP_S = 60.0
"""Seconds that SIGKILL may take to end a trial's remaining processes: microseconds usually, seconds
if they held much kernel memory, unless the kernel waits for a device."""


class Reaper:
    """Reap descendants of the current process."""

    def __init__(self) -> None:
        self._expected: set[int] = set()
        """Processes whose end somebody will ask about."""
        self._dead: dict[int, tuple[int, resource.struct_rusage]] = {}
        """Exit status and usage of those that have ended."""

    def expect(self, pid: int) -> None:
        """Register a process whose end will be asked about once."""
        self._expected.add(pid)

    def collect(self) -> None:
        """Collect every process that has ended by now."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._expected:
                self._expected.remove(pid)
                self._dead[pid] = status, usage

    def has(self, pid: int) -> bool:
        """Return whether it has been collected, and not been asked about."""
        return pid in self._dead

    def ended(
        self,
        pid: int,
        survivors: tuple[int, ...] = (),
    ) -> Ended:
        """Return how a collected process ended.

        :param survivors: processes that :meth:`sweep` could not end.
        """
        status, usage = self._dead.pop(pid)
        unit = 1 if sys.platform == "darwin" else 1024
        exit_code = os.waitstatus_to_exitcode(status)
        return Ended(
            exit_code=exit_code if exit_code >= 0 else None,
            signal=-exit_code if exit_code < 0 else None,
            peak_bytes=usage.ru_maxrss * unit,
            survivors=survivors,
        )

    def sweep(self) -> tuple[int, ...]:
        """Kill and collect every child, and processes that thereby become children; return those
        that survive."""
        give_up_at = time.monotonic() + SWEEP_S
        while True:
            self.collect()
            left = children(os.getpid())
            if not left:
                return ()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > give_up_at:
                return tuple(sorted(left))
            time.sleep(0.0005)
