"""Watch the machine's /dev/shm for a trial whose menu declares that it uses it.

POSIX semaphores (every lock of :mod:`multiprocessing`) and torch's shared tensors are files in
/dev/shm. A command has its own where it has a world of its own
(:mod:`trainer.isolation.kernel.world`). Elsewhere a menu may declare that its trials use the
machine's (``shared_memory = true``), which holds files of other programs. What a trial adds there
counts as its memory (:func:`added_bytes`), and whatever it leaves there is removed after it
(:func:`sweep`). Not counted are deleted files that it maps without having them open, except for
their resident pages. A closed file of another program may count as the trial's if it is new and the
limit is near.
"""

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from trainer.isolation.kernel.world import SHARED_MEMORY
from trainer.isolation.process_tree import descendants, open_files

_MAPPED = re.compile(rf"{SHARED_MEMORY}/([^/\n]+)\n")


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
