"""Find the process tree of a trial, and tie its life to its parent's.

Linux answers all of this from /proc in well under a millisecond. Elsewhere psutil's slower scan of
every process does, and the ties to the parent (:func:`become_subreaper`, :func:`die_with_parent`)
do nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from trainer.isolation.kernel.libc import check, libc

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make orphaned descendants of any session children of this process."""
    if sys.platform == "linux":
        check(libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send ``by`` when the parent's thread dies; send it now if it is already
    dead."""
    if sys.platform == "linux":
        check(libc().prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def children(pid: int) -> list[int]:
    """Return the live and zombie children of ``pid``; none if it is gone."""
    tasks = f"/proc/{pid}/task"
    try:
        found: list[int] = []
        for thread in os.listdir(tasks):  # noqa: PTH208 (ten times a second, of every process)
            with open(f"{tasks}/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # the process or a thread ended, or this kernel has no children files
        return _scan_for_children(pid)
    return found


def _scan_for_children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def descendants(pid: int) -> Iterator[int]:
    """Yield every process below ``pid``, parents before their children."""
    todo = children(pid)
    while todo:
        child = todo.pop()
        yield child
        todo += children(child)


def oom_kills() -> int | None:
    """Return how often the kernel's out-of-memory killer acted on this machine; None if unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def await_death(pids: set[int], timeout_s: float) -> None:
    """Wait until none of these processes, which need not be children, runs any more."""
    give_up_at = time.monotonic() + timeout_s
    while any(map(_runs, pids)) and time.monotonic() < give_up_at:
        time.sleep(0.005)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
