"""A /dev/shm of a trial's own, for its command's semaphores and shared memory.

POSIX semaphores (every lock of :mod:`multiprocessing`) and torch's shared tensors are files in
/dev/shm, and the machine's own holds those of other programs. So the trial's process mounts a tmpfs
there, in a mount namespace of its own, before it is confined: nobody else sees it, and the kernel
frees it with the trial's last process. Its size is at most the trial's limit of memory, and its
files count (twice where they are mapped too and no cgroup counts). It holds no devices and no
programs.

Where no mount namespace can be had, as in most containers, a menu may declare that its trials use
the machine's /dev/shm (``shared_memory = true``). Pages that the trial maps count as its memory,
and whatever it leaves there is removed after it (:func:`sweep`).

An ordinary user needs a user namespace for the mount, and gives up all of its capabilities at once.
This opens no socket: :mod:`trainer.command.startup` replaces torch's way to pass the descriptor of
a tensor by a Unix socket, and the filter of system calls refuses sockets as before.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import cache
from pathlib import Path

from trainer.isolation.kernel.libc import check, drop_capabilities, libc

SHARED_MEMORY = Path("/dev/shm")
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_PRIVATE = 0x4000 | 1 << 18
_NO_SUID_DEVICES_OR_PROGRAMS = 2 | 4 | 8
_MOST_FILES = 65_536
_MAPPED = re.compile(rf"{SHARED_MEMORY}/([^/\n]+)\n")


def mount_own(memory_gib: float | None) -> bool:
    """Mount one for this single-threaded process; False if this machine refuses."""
    if can_mount():
        _mount(memory_gib)
    return can_mount()


@cache
def can_mount() -> bool:
    """Return whether a process forked from here can mount one; a partial mount would be worse than
    none. The fork server finds out, since a fork of a trial costs 10 ms."""
    if sys.platform != "linux" or not SHARED_MEMORY.is_dir():
        return False
    trying = os.fork()
    if trying == 0:
        try:
            _mount(None)
            os._exit(0)
        except BaseException:  # noqa: BLE001 (the edge of a process)
            os._exit(1)
    return os.waitpid(trying, 0)[1] == 0


def held_bytes(pid: int) -> int:
    """Return what the trial of that process holds in one; 0 if it has none."""
    own = Path(f"/proc/{pid}/root{SHARED_MEMORY}")
    try:
        if own.stat().st_dev == SHARED_MEMORY.stat().st_dev:
            return 0
        found = os.statvfs(own)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def own_files() -> frozenset[str]:
    """Return the names of this user's files in the machine's /dev/shm."""
    try:
        entries = list(os.scandir(SHARED_MEMORY))
    except OSError:
        return frozenset()
    owned = set()
    for entry in entries:
        with contextlib.suppress(OSError):  # it has gone meanwhile
            if entry.is_file(follow_symlinks=False) and entry.stat().st_uid == os.geteuid():
                owned.add(entry.name)
    return frozenset(owned)


def sweep(before: frozenset[str]) -> int:
    """Remove this user's files that are new and that no process has open or mapped.

    :param before: the files that were there when the trial began.
    :return: the bytes that are free again.
    """
    freed = 0
    used = _used_files()
    for name in own_files() - before - used:
        path = SHARED_MEMORY / name
        with contextlib.suppress(OSError):
            size = path.lstat().st_blocks * 512
            path.unlink()
            freed += size
    return freed


def _used_files() -> set[str]:
    """Return the names of the files in /dev/shm that a process of this user has open or mapped."""
    used: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            used.update(_MAPPED.findall((folder / "maps").read_text("utf-8", "replace")))
        with contextlib.suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                with contextlib.suppress(OSError):
                    used.update(_MAPPED.findall(f"{descriptor.readlink()}\n"))
    return used


def _mount(memory_gib: float | None) -> None:
    uid, gid = os.geteuid(), os.getegid()
    check(libc().unshare(_NEW_MOUNTS | (_NEW_USER if uid else 0)), "unshare")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    check(libc().mount(b"none", b"/", None, _PRIVATE, None), "mount")
    size = "50%" if memory_gib is None else str(int(memory_gib * 2**30))
    given = f"size={size},nr_inodes={_MOST_FILES},mode=700".encode()
    place = os.fsencode(SHARED_MEMORY)
    check(libc().mount(b"tmpfs", place, b"tmpfs", _NO_SUID_DEVICES_OR_PROGRAMS, given), "mount")
    if uid:
        drop_capabilities(0)
