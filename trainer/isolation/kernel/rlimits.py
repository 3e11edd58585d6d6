"""The limits that the kernel keeps for each process by itself: setrlimit(2)."""

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
"""The stack of one thread, and then some; there is room for a thread for each processor."""


def limit_resources(spec: TrialSpec, user_tasks: int) -> None:
    """Set this process's limits as ``spec`` says; ``user_tasks`` run already.

    :raises OSError: where the kernel refuses.
    """
    limits = spec.limits
    wanted = {
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: user_tasks + limits.tasks,
        # Not 0: the kernel takes 1 to mean no dump even where core_pattern pipes to a collector.
        resource.RLIMIT_CORE: 1,
    }
    if sys.platform == "linux" and limits.memory_gib is not None and spec.device == "cpu":
        wanted[resource.RLIMIT_DATA] = _most_data_bytes(limits.memory_gib)
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (capped, capped))


def _most_data_bytes(memory_gib: float) -> int:
    """Private memory that a trial may map, touched or not: a wall well behind the limit on what it
    holds, which nothing honest meets, for what would be too fast for the supervisor's looks."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[5])
    stacks = _STACK_BYTES * (os.cpu_count() or 1)
    mapped = pages * resource.getpagesize()
    return mapped + int(2 * memory_gib * (1 << 30)) + _SPARE_DATA_BYTES + stacks


def tasks_of_this_user() -> int:
    """Threads that this process's user runs on this machine."""
    tasks = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                tasks += process.num_threads()
    return tasks
