"""Set the limits that the kernel enforces for each process by itself: setrlimit(2)."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path

import psutil

from trainer.spec import TrialSpec

_SPARE_DATA_BYTES = 1 << 30
_STACK_BYTES = 16 << 20
"""Stack of one thread, with a margin; there is memory for a thread per processor."""


def limit_resources(spec: TrialSpec, user_tasks: int) -> None:
    """Set this process's limits to those of ``spec``; the user already runs ``user_tasks``.

    :raises OSError: if the kernel refuses.
    """
    limits = spec.limits
    wanted = {
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: user_tasks + limits.tasks,
        # Not 0: the kernel treats 1 as no dump even if core_pattern pipes to a collector.
        resource.RLIMIT_CORE: 1,
    }
    if sys.platform == "linux" and limits.memory_gib is not None and spec.device == "cpu":
        wanted[resource.RLIMIT_DATA] = _most_data_bytes(limits.memory_gib)
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (capped, capped))


def _most_data_bytes(memory_gib: float) -> int:
    """Return the private memory that a trial may map, touched or not. It is far above the limit on
    held memory, and only stops growth that is too fast for the supervisor's polling."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[5])
    stacks = _STACK_BYTES * (os.cpu_count() or 1)
    mapped = pages * resource.getpagesize()
    return mapped + int(2 * memory_gib * (1 << 30)) + _SPARE_DATA_BYTES + stacks


def tasks_of_this_user() -> int:
    """Return the number of threads that this process's user runs on this machine."""
    tasks = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                tasks += process.num_threads()
    return tasks
