"""Find the process tree of a trial, tie its life to its parent's, and end what it leaves behind.

Linux answers all of this from /proc in well under a millisecond.

As a subreaper the fork server inherits every process that a trial orphans, in any session. So
everything of a trial is below a child of the server, and when nothing is left the trial has ended.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from trainer.isolation.kernel.libc import check, libc
from trainer.isolation.messages import Ended

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make orphaned descendants of any session children of this process."""
    check(libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send ``by`` when the parent's thread dies; send it now if it is already
    dead."""
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
        found = []
        with contextlib.suppress(psutil.Error):
            found = [child.pid for child in psutil.Process(pid).children()]
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yield every process below ``pid``, parents before their children."""
    todo = children(pid)
    while todo:
        child = todo.pop()
        yield child
        todo += children(child)


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """Yield each descriptor of a process, as a path, and its target; none if it has gone."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry.path, str(Path(entry.path).readlink())


def oom_kills() -> int | None:
    """Return how often the kernel's out-of-memory killer acted on this machine; None if unknown."""
    return counts_in(Path("/proc/vmstat")).get("oom_kill")


def counts_in(path: Path) -> dict[str, int]:
    """Return the counts of the kernel's ``name number`` lines; none if they cannot be read."""
    try:
        fields = (line.split() for line in path.read_text().splitlines())
        return {name: int(number) for name, number in fields}
    except (OSError, ValueError):
        return {}


def await_death(pids: set[int], timeout_s: float) -> None:
    """Wait until none of these processes, which need not be children, runs any more."""
    give_up_at = time.monotonic() + timeout_s
    gone = {None, psutil.STATUS_ZOMBIE}
    while any(_state(pid) not in gone for pid in pids) and time.monotonic() < give_up_at:
        time.sleep(0.005)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process."""
    return _state(pid) == str(psutil.STATUS_STOPPED)


def _state(pid: int) -> str | None:
    """Return psutil's name of the process's state; None if there is no such process."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return None


SWEEP_S = 60.0
"""Seconds that SIGKILL may take to end a trial's remaining processes: microseconds usually, seconds
if they held much kernel memory, unless the kernel waits for a device."""


def collect(wanted: int | None = None) -> Ended | None:
    """Collect every child that has ended by now; return how ``wanted`` ended if it is among
    them."""
    found = None
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == wanted:
            code = os.waitstatus_to_exitcode(status)
            how = {"exit_code": code} if code >= 0 else {"signal": -code}
            found = Ended(**how, peak_bytes=usage.ru_maxrss * 1024)


def sweep() -> tuple[int, ...]:
    """Kill and collect every child, and processes that thereby become children; return those
    that survive."""
    give_up_at = time.monotonic() + SWEEP_S
    while True:
        collect()
        left = children(os.getpid())
        if not left:
            return ()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            return tuple(sorted(left))
        time.sleep(0.0005)
