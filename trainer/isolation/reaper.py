"""Collects every process that ends below the fork server, and ends what a trial has left.

As a subreaper the fork server inherits every process that a trial orphans, whatever session it fled
to. So nothing of a trial lives that is not below a child of the server's, and when none is left
the trial has ended.
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
"""How long SIGKILL may take to end what a trial left behind: microseconds, or seconds where it held
much of the kernel's memory, unless the kernel is waiting for a device."""


class Reaper:
    """Of the process that it is made in."""

    def __init__(self) -> None:
        self._expected: set[int] = set()
        """Processes whose end somebody will ask about."""
        self._dead: dict[int, tuple[int, resource.struct_rusage]] = {}
        """Of those: how each ended, and what it took."""

    def expect(self, pid: int) -> None:
        """Its end will be asked about, once."""
        self._expected.add(pid)

    def collect(self) -> None:
        """Every process that has ended by now."""
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
        """Whether it has been collected, and not been asked about."""
        return pid in self._dead

    def ended(
        self,
        pid: int,
        survivors: tuple[int, ...] = (),
    ) -> Ended:
        """How one ended that has been collected.

        :param survivors: what :meth:`sweep` could not end behind it.
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
        """Kill and collect every child, and what becomes a child by that; return those that won't
        die."""
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
