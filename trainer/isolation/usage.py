"""Measure what a trial uses: memory and threads of its processes, and its time.

Memory is read from /proc. Resident memory is read through a live thread: a process whose main
thread has ended shows none under its own number, even if its other threads hold memory. Swapped
pages and page tables count too. On a GPU and for a command, where the sandbox allows them, memfds,
sockets and shared anonymous mappings count as well, resident or not, and their resident parts once.
A measurement takes tens of microseconds per process.

Time in which the trial or the machine was suspended does not count. A closed laptop, a paused
container and a stopped process look alike from inside: no code runs, and clocks continue. A
supervisor that wakes every tenth of a second sees a gap between two ticks, and sees a trial that
alone was stopped by its process state.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.isolation.kernel import world
from trainer.isolation.process_tree import descendants, open_files

_COUNTED = (b"VmRSS:", b"VmSwap:", b"VmPTE:", b"HugetlbPages:")
_SHARES = (b"Pss:", b"SwapPss:", b"Shared_Hugetlb:", b"Private_Hugetlb:")
_ANONYMOUS = b"/dev/zero (deleted)"
"""The kernel's name of a shared anonymous mapping."""
_SOCKET_BUFFER = Path("/proc/sys/net/core/wmem_max")
_SOCKET_BUFFER_BYTES = 212_992
"""Linux's default."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Usage of one process at one moment."""

    pid: int
    thread: int
    """A live thread, through which the process's memory can be read; the process's own number if
    none is known."""
    held_bytes: int
    """Bytes resident, huge pages included, swapped, and in page tables."""
    page_table_bytes: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> ProcessUsage | None:
        """Measure a process; None if it has gone."""
        own = _status(pid)
        if own is None:
            return None
        threads, alive = own.get(b"Threads:", 1), [pid]
        if b"VmRSS:" not in own and threads != 1:
            with contextlib.suppress(OSError):
                alive = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        for thread in alive:
            of_thread = own if thread == pid else _status(thread) or {}
            if b"VmRSS:" in of_thread:
                held_bytes = sum(of_thread.get(name, 0) for name in _COUNTED) * 1024
                return cls(pid, thread, held_bytes, of_thread.get(b"VmPTE:", 0) * 1024, threads)
        return cls(pid, pid, 0, 0, threads)


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """Usage of the descendants of a process at one moment."""

    processes: tuple[ProcessUsage, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self.processes)

    @property
    def threads(self) -> int:
        return sum(process.threads for process in self.processes)

    def weigh(self, limit_bytes: float | None, *, count_unmapped: bool) -> int:
        """Return bytes held. Pages shared by several processes count once if that may decide about
        ``limit_bytes``, and else once per process.

        :param count_unmapped: whether memfds, sockets and shared anonymous mappings count.
        """
        held_bytes = sum(process.held_bytes for process in self.processes)
        if limit_bytes is None:
            return held_bytes
        unseen_bytes = unmapped_bytes(self.pids) if count_unmapped else 0
        # The machine's shared memory is an upper bound of the trial's, and quick to read.
        if count_unmapped and held_bytes + unseen_bytes + _machine_shared_bytes() > limit_bytes:
            unseen_bytes += sum(_shared_anonymous(self.pids).values())
            unseen_bytes -= mapped_bytes(self.processes)
        if len(self.processes) > 1 and held_bytes + unseen_bytes > limit_bytes:
            proportional = self._proportional_bytes()
            if proportional is not None and proportional + unseen_bytes > limit_bytes:
                # A page forked between two processes' measurements counts in full and again in
                # part.
                proportional = min(proportional, self._proportional_bytes() or proportional)
            held_bytes = held_bytes if proportional is None else proportional
        return held_bytes + unseen_bytes

    def _proportional_bytes(self) -> int | None:
        """Return the sum with each shared page divided among its users (PSS).

        None if the kernel does not report it. It walks page tables: milliseconds per GiB.
        """
        total = 0
        for process in self.processes:
            try:
                rollup = Path(f"/proc/{process.thread}/smaps_rollup").read_bytes()
            except (ProcessLookupError, FileNotFoundError):
                if b"VmRSS:" in (_status(process.thread) or {}):
                    return None
                continue  # it ended meanwhile, and holds nothing
            except OSError:
                return None
            kib = _kib_by_name(rollup)
            total += sum(kib.get(name, 0) for name in _SHARES) * 1024
            total += process.page_table_bytes
        return total


def usage_below(pid: int) -> TreeUsage:
    """Return what each process below ``pid`` holds, without ``pid`` itself."""
    found = map(ProcessUsage.of, descendants(pid))
    return TreeUsage(tuple(usage for usage in found if usage is not None))


def unmapped_bytes(pids: tuple[int, ...]) -> int:
    """Return memory that open files of these processes may hold besides mapped pages: all of their
    memfds once, and the maximum of each socket's buffers."""
    sockets = {
        target for pid in pids for _, target in open_files(pid) if target.startswith("socket:")
    }
    try:
        buffer_bytes = int(_SOCKET_BUFFER.read_text())
    except (OSError, ValueError):
        buffer_bytes = _SOCKET_BUFFER_BYTES
    # The kernel doubles what a process asks for.
    return sum(_memfds(pids).values()) + len(sockets) * 2 * buffer_bytes


def mapped_bytes(processes: Iterable[ProcessUsage]) -> int:
    """Return the part of these processes' memfds and shared anonymous mappings that is in their
    resident memory too.

    It sums mapping by mapping, since other shared memory must not hide an unmapped memfd, and
    counts each page once (PSS). It walks page tables, so call it only if the answer matters.
    """
    processes = tuple(processes)
    pids = tuple(process.pid for process in processes)
    sizes = {**_memfds(pids), **_shared_anonymous(pids)}
    mapped = dict.fromkeys(sizes, 0)
    for process in processes if sizes else ():
        for file, resident_bytes in _resident_shares(process.thread):
            if file in mapped:
                mapped[file] += resident_bytes
    return sum(min(sizes[file], resident_bytes) for file, resident_bytes in mapped.items())


def _machine_shared_bytes() -> int:
    with contextlib.suppress(OSError):
        return _kib_by_name(Path("/proc/meminfo").read_bytes()).get(b"Shmem:", 0) * 1024
    return 0


def _shared_anonymous(pids: Iterable[int]) -> dict[tuple[int, int], int]:
    """Return the size of each shared anonymous mapping, by device and inode: its pages stay when a
    process drops them from its resident memory."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open("rb") as lines:
            for line in lines:
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(_ANONYMOUS):
                    first, _, end = fields[0].partition(b"-")
                    size = int(fields[2], 16) + int(end, 16) - int(first, 16)
                    file = _file(fields)
                    sizes[file] = max(size, sizes.get(file, 0))
    return sizes


def _file(fields: Sequence[bytes]) -> tuple[int, int]:
    """Return device and inode of ``7f00-7f10 rw-s 00000000 00:01 1027 /memfd:name (deleted)``."""
    major, _, minor = fields[3].partition(b":")
    return os.makedev(int(major, 16), int(minor, 16)), int(fields[4])


def _memfds(pids: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Return the bytes of each open memfd, by device and inode."""
    memfds: dict[tuple[int, int], int] = {}
    for pid in pids:
        for descriptor, target in open_files(pid):
            if target.startswith("/memfd:"):
                with contextlib.suppress(OSError):
                    status = os.stat(descriptor)  # noqa: PTH116 (a path of /proc, many a second)
                    if stat.S_ISREG(status.st_mode):
                        memfds[status.st_dev, status.st_ino] = status.st_blocks * 512
    return memfds


def _resident_shares(thread: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield device and inode of each mapped memfd and shared anonymous mapping, and its resident
    share (PSS)."""
    file: tuple[int, int] | None = None
    with contextlib.suppress(OSError), Path(f"/proc/{thread}/smaps").open("rb") as lines:
        for line in lines:
            fields = line.split(maxsplit=5)
            if b"-" in fields[0]:
                is_shared = len(fields) == 6 and fields[5].startswith((b"/memfd:", _ANONYMOUS))
                file = _file(fields) if is_shared else None
            elif file is not None and fields[0] == b"Pss:":
                yield file, int(fields[1]) * 1024


def _status(thread: int) -> dict[bytes, int] | None:
    """Return the numbers of /proc/THREAD/status; None if there is no such thread."""
    try:
        with open(f"/proc/{thread}/status", "rb", buffering=0) as file:  # noqa: PTH123 (as above)
            return _kib_by_name(file.read())
    except OSError:
        return None


def _kib_by_name(text: bytes) -> dict[bytes, int]:
    """Parse ``Name:  123 kB`` and ``Name:  123`` lines, ignoring others."""
    fields = (line.split() for line in text.splitlines())
    return {each[0]: int(each[1]) for each in fields if len(each) > 1 and each[1].isdigit()}


def world_bytes(pids: Sequence[int]) -> int:
    """Return the bytes in /tmp and /dev/shm, which share one file system, of the world that these
    processes run in; 0 if they run in none."""
    outside = Path("/").stat().st_dev
    for pid in reversed(pids):  # the last ones are deepest in the tree
        try:
            if Path(f"/proc/{pid}/root").stat().st_dev == outside:
                continue
            found = os.statvfs(f"/proc/{pid}/root{world.SHARED_MEMORY}")
        except OSError:
            continue
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


_GAP_S = 2.0
"""Ticks come ten times a second; one this late did not only wait for a processor."""
_CLOCK = time.CLOCK_BOOTTIME
"""Continues while the machine is suspended, so that a suspension is a gap too."""


class TrialTime:
    """Remaining part of a trial's time limit."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._ticked_s = time.clock_gettime(_CLOCK)
        self._busy_s = time.thread_time()
        self._stopped_s = 0.0
        self.left_s = limit_s
        self.still_s = 0.0
        """Seconds that did not count."""

    def tick(self, is_stopped: Callable[[], bool]) -> None:
        """Count the time since the same thread's last tick."""
        now_s, busy_s = time.clock_gettime(_CLOCK), time.thread_time()
        idle_s = now_s - self._ticked_s - (busy_s - self._busy_s)
        self.count(now_s - self._ticked_s, idle_s, is_stopped)
        self._ticked_s, self._busy_s = now_s, busy_s

    def count(self, passed_s: float, idle_s: float, is_stopped: Callable[[], bool]) -> None:
        """Count ``passed_s``, of which the supervisor was idle for ``idle_s``.

        A trial can stop itself, so time in which it alone was stopped is free only up to the limit.
        """
        still_s = 0.0
        if idle_s > _GAP_S:
            still_s = idle_s
        elif self._stopped_s < self._limit_s and is_stopped():
            still_s = passed_s
            self._stopped_s += passed_s
        self.still_s += still_s
        self.left_s -= passed_s - still_s
