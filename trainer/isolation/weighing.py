"""What the processes of a trial hold: memory and threads, as /proc tells of each.

Resident memory is asked of a thread that lives: a process whose main thread has ended shows none at
its own number, whatever the others hold. Swapped pages and page tables count, since they are held
as well. On a GPU, where the sandbox leaves memfds and sockets, those count too, mapped or not, and
what is mapped of them once. A look costs tens of microseconds a process; elsewhere than on Linux
psutil's slower one does.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainer.isolation.process_tree import descendants

_COUNTED = (b"VmRSS:", b"VmSwap:", b"VmPTE:", b"HugetlbPages:")
_SHARES = (b"Pss:", b"SwapPss:", b"Shared_Hugetlb:", b"Private_Hugetlb:")
_SOCKET_BUFFER = Path("/proc/sys/net/core/wmem_max")
_SOCKET_BUFFER_BYTES = 212_992
"""What Linux sets there unless told otherwise."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What one process holds at one moment."""

    pid: int
    thread: int
    """A live one, by whose number the process's memory can be asked about; its own where none is
    known."""
    held_bytes: int
    """Resident, huge pages included, swapped, and in page tables."""
    page_table_bytes: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> ProcessUsage | None:
        """None where the process has gone."""
        if sys.platform != "linux":
            return cls._by_psutil(pid)
        own = _status(pid)
        if own is None:
            return None
        threads = own.get(b"Threads:", 1)
        for thread in [pid] if b"VmRSS:" in own or threads == 1 else _threads(pid):
            of_thread = own if thread == pid else _status(thread) or {}
            if b"VmRSS:" in of_thread:
                held_bytes = sum(of_thread.get(name, 0) for name in _COUNTED) * 1024
                return cls(pid, thread, held_bytes, of_thread.get(b"VmPTE:", 0) * 1024, threads)
        return cls(pid, pid, 0, 0, threads)

    @classmethod
    def _by_psutil(cls, pid: int) -> ProcessUsage | None:
        try:
            process = psutil.Process(pid)
            return cls(pid, pid, process.memory_info().rss, 0, process.num_threads())
        except psutil.Error:  # ended meanwhile, or a zombie
            return None


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """What the descendants of a process hold at one moment."""

    processes: tuple[ProcessUsage, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self.processes)

    @property
    def threads(self) -> int:
        return sum(process.threads for process in self.processes)

    def weigh(self, limit_bytes: float | None, *, on_gpu: bool) -> int:
        """Bytes held; pages that several processes share count once where ``limit_bytes`` may
        depend on it, and else once for each."""
        held_bytes = sum(process.held_bytes for process in self.processes)
        if limit_bytes is None:
            return held_bytes
        unseen_bytes = unmapped_bytes(self.pids) if on_gpu else 0
        if unseen_bytes and held_bytes + unseen_bytes > limit_bytes:
            unseen_bytes -= mapped_memfd_bytes(self.processes)
        if len(self.processes) > 1 and held_bytes + unseen_bytes > limit_bytes:
            proportional = self._proportional_bytes()
            if proportional is not None and proportional + unseen_bytes > limit_bytes:
                # A page forked between two processes' answers counts in full and again in part.
                proportional = min(proportional, self._proportional_bytes() or proportional)
            held_bytes = held_bytes if proportional is None else proportional
        return held_bytes + unseen_bytes

    def _proportional_bytes(self) -> int | None:
        """With each shared page divided among those that share it (PSS).

        None where the kernel does not tell. It walks page tables: milliseconds a GiB.
        """
        total = 0
        for process in self.processes:
            try:
                rollup = Path(f"/proc/{process.thread}/smaps_rollup").read_bytes()
            except (ProcessLookupError, FileNotFoundError):
                if _is_there(process.thread):
                    return None
                continue  # it ended meanwhile, and holds nothing
            except OSError:
                return None
            kib = _kib_by_name(rollup)
            total += sum(kib.get(name, 0) for name in _SHARES) * 1024
            total += process.page_table_bytes
        return total


def usage_below(pid: int) -> TreeUsage:
    """Return what each process below ``pid`` holds, itself not included."""
    found = map(ProcessUsage.of, descendants(pid))
    return TreeUsage(tuple(usage for usage in found if usage is not None))


def unmapped_bytes(pids: tuple[int, ...]) -> int:
    """Memory that open files of these processes may hold beside what is mapped: all of their
    memfds, each once, and of each socket the most that its buffers can hold."""
    sockets = {
        target for pid in pids for _, target in _open_files(pid) if target.startswith("socket:")
    }
    return sum(_memfds(pids).values()) + len(sockets) * _socket_bytes()


def mapped_memfd_bytes(processes: Iterable[ProcessUsage]) -> int:
    """What of the open memfds of these processes is in their resident memory too.

    Mapping by mapping, since other shared memory must not hide an unmapped memfd behind it; each
    page once (PSS). It walks page tables, so ask where the answer matters.
    """
    processes = tuple(processes)
    memfds = _memfds(tuple(process.pid for process in processes))
    mapped: dict[tuple[int, int], int] = dict.fromkeys(memfds, 0)
    for process in processes if memfds else ():
        for file, resident_bytes in _memfd_mappings(process.thread):
            if file in mapped:
                mapped[file] += resident_bytes
    return sum(min(memfds[file], resident_bytes) for file, resident_bytes in mapped.items())


def _memfds(pids: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Bytes of each open memfd, by its device and inode."""
    memfds: dict[tuple[int, int], int] = {}
    for pid in pids:
        for descriptor, target in _open_files(pid):
            if target.startswith("/memfd:"):
                with contextlib.suppress(OSError):
                    status = os.stat(descriptor)  # noqa: PTH116 (a path of /proc, many a second)
                    if stat.S_ISREG(status.st_mode):
                        memfds[status.st_dev, status.st_ino] = status.st_blocks * 512
    return memfds


def _memfd_mappings(thread: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Device and inode of each mapped memfd, and its share of what is resident (PSS)."""
    file: tuple[int, int] | None = None
    with contextlib.suppress(OSError), Path(f"/proc/{thread}/smaps").open("rb") as lines:
        for line in lines:
            fields = line.split(maxsplit=5)
            if b"-" in fields[0]:  # 7f00-7f10 rw-s 00000000 00:01 1027 /memfd:name (deleted)
                is_memfd = len(fields) == 6 and fields[5].startswith(b"/memfd:")
                major, _, minor = fields[3].partition(b":") if is_memfd else (b"", b"", b"")
                file = (
                    (os.makedev(int(major, 16), int(minor, 16)), int(fields[4])) if major else None
                )
            elif file is not None and fields[0] == b"Pss:":
                yield file, int(fields[1]) * 1024


def _socket_bytes() -> int:
    """The kernel doubles what a process asks for, up to this limit."""
    try:
        return 2 * int(_SOCKET_BUFFER.read_text())
    except (OSError, ValueError):
        return 2 * _SOCKET_BUFFER_BYTES


def _open_files(pid: int) -> Iterator[tuple[str, str]]:
    directory = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry.path, str(Path(entry.path).readlink())


def _is_there(thread: int) -> bool:
    """Whether the thread has memory still."""
    return b"VmRSS:" in (_status(thread) or {})


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _status(thread: int) -> dict[bytes, int] | None:
    """The numbers of /proc/THREAD/status; None where there is no such thread."""
    try:
        with open(f"/proc/{thread}/status", "rb", buffering=0) as file:  # noqa: PTH123 (as above)
            return _kib_by_name(file.read())
    except OSError:
        return None


def _kib_by_name(text: bytes) -> dict[bytes, int]:
    """``Name:  123 kB`` and ``Name:  123``, a line each; other lines are none of ours."""
    fields = (line.split() for line in text.splitlines())
    return {each[0]: int(each[1]) for each in fields if len(each) > 1 and each[1].isdigit()}
