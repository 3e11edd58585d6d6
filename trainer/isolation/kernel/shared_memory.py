"""A /dev/shm of a trial's own, for its command's semaphores and shared memory.

POSIX semaphores (every lock of :mod:`multiprocessing`) and torch's shared tensors are files in
/dev/shm, and the machine's own holds those of other programs. So the trial's process mounts a tmpfs
there, in a mount namespace of its own, before it is confined: nobody else sees it, and the kernel
frees it with the trial's last process. Its size is at most the trial's limit of memory, and its
files count (twice where they are mapped too and no cgroup counts). It holds no devices and no
programs.

Where no mount namespace can be had, as in most containers, a menu may declare that its trials use
the machine's /dev/shm (``shared_memory = true``). What the trial adds there counts as its memory,
too (:func:`added_bytes`), and whatever it leaves there is removed after it (:func:`sweep`). Not
counted are deleted files that it maps without having them open, except for their resident pages. A
closed file of another program may count as the trial's if it is new and the limit is near.

An ordinary user needs a user namespace for the mount, and gives up all of its capabilities at once.
This opens no socket: :mod:`trainer.command.startup` replaces torch's way to pass the descriptor of
a tensor by a Unix socket, and the filter of system calls refuses sockets as before.
"""

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

from trainer.isolation.kernel.libc import check, drop_capabilities, libc
from trainer.isolation.process_tree import descendants, open_files

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
    if not SHARED_MEMORY.is_dir():
        return False
    trying = os.fork()
    if trying == 0:
        try:
            _mount(None)
            os._exit(0)
        except BaseException:  # noqa: BLE001 (the edge of a process)
            os._exit(1)
    return os.waitpid(trying, 0)[1] == 0


def held_bytes(trial: int, server: int, before: Mapping[str, int] | None, room_bytes: float) -> int:
    """Return what a trial holds in its own, or has added to the machine's.

    :param trial: the trial's process.
    :param server: the process below which all of the trial's processes are.
    :param before: the machine's files when the trial began; None if it may not use them.
    :param room_bytes: the most that it may hold.
    """
    own = Path(f"/proc/{trial}/root{SHARED_MEMORY}")
    try:
        if own.stat().st_dev == SHARED_MEMORY.stat().st_dev:
            return 0 if before is None else added_bytes(server, before, room_bytes)
        found = os.statvfs(own)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def added_bytes(server: int, before: Mapping[str, int], room_bytes: float) -> int:
    """Return by how much files in the machine's grew, and what deleted files the trial has open.

    If that exceeds ``room_bytes``, files that processes outside the trial use do not count: to find
    these processes takes milliseconds.
    """
    grown = {name: held - before.get(name, 0) for name, held in own_files().items()}
    added = {name: more for name, more in grown.items() if more > 0}
    deleted = _deleted_bytes(descendants(server))
    if sum(added.values()) + deleted > room_bytes:
        users = _users()
        inside = set(descendants(server))
        for pid, names in users.items():
            # One that has ended may have been the trial's.
            if pid not in inside and Path(f"/proc/{pid}").exists():
                for name in names:
                    added.pop(name, None)
    return sum(added.values()) + deleted


def own_files() -> dict[str, int]:
    """Return this user's files in the machine's /dev/shm: bytes held by name."""
    try:
        entries = list(os.scandir(SHARED_MEMORY))
    except OSError:
        return {}
    owned = {}
    for entry in entries:
        with contextlib.suppress(OSError):  # it has gone meanwhile
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                owned[entry.name] = status.st_blocks * 512
    return owned


def sweep(before: Collection[str]) -> int:
    """Remove this user's files that are new and that no process has open or mapped.

    :param before: the files that were there when the trial began.
    :return: the bytes that are free again.
    """
    freed = 0
    used = set[str]().union(*_users().values())
    for name, held in own_files().items():
        if name not in before and name not in used:
            with contextlib.suppress(OSError):
                (SHARED_MEMORY / name).unlink()
                freed += held
    return freed


def _users() -> dict[int, set[str]]:
    """Return the names of the files in /dev/shm that each process has open or mapped."""
    users = {}
    for folder in Path("/proc").glob("[0-9]*"):
        used: set[str] = set()
        with contextlib.suppress(OSError):
            used.update(_MAPPED.findall((folder / "maps").read_text("utf-8", "replace")))
        pid = int(folder.name)
        for _, target in open_files(pid):
            used.update(_MAPPED.findall(f"{target}\n"))
        users[pid] = used
    return users


def _deleted_bytes(pids: Iterable[int]) -> int:
    """Return the bytes of deleted files of /dev/shm that these processes have open, each once."""
    held: dict[int, int] = {}
    for pid in pids:
        for descriptor, target in open_files(pid):
            if target.startswith(f"{SHARED_MEMORY}/"):
                with contextlib.suppress(OSError):
                    status = Path(descriptor).stat()
                    if status.st_nlink == 0:
                        held[status.st_ino] = status.st_blocks * 512
    return sum(held.values())


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
