"""Attack from a command what namespaces keep apart, in addition to
:mod:`tests.support.kernel_attacks`.

Each attack returns what it got; an OSError becomes the loot. None can hurt the machine it runs on:
what is opened there is not written.
"""

import array
import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.hostile import hold
from tests.support.kernel_attacks import call_kernel, tell_processes

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_REMOUNT_BIND, _DETACH, _HERE, _READ_ONLY = 0x20 | 0x1000, 2, -100, 1
_SEIZE = 0x4206
_MOST_FILES = 64
FORGED = b"ended 0 0\n"
"""Report of a world's first process about a command that has ended well."""


# --- what lies outside ----------------------------------------------------------------------------


def connect_when_told(trial_dir: Path, address: str) -> str:
    """Connect to a socket that is made after the trial began."""
    (trial_dir / "ready").touch()
    hold(trial_dir)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
    return "connected"


def write_into_special(trial_dir: Path, path: str) -> str:
    """Write to a FIFO or a device; return "a file" of what is none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "a file"
        file.write(b"secret")
    return "written"


def read_from_special(trial_dir: Path, path: str) -> str:
    """Read from a FIFO or a device; return "a file" of what is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "a file"
        return (file.read(6) or b"").decode()


def make_device(trial_dir: Path) -> str:
    os.mknod(trial_dir / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return "made"


def open_to_write(trial_dir: Path, path: str) -> str:
    os.close(os.open(path, os.O_WRONLY))
    return "opened"


def list_sockets(trial_dir: Path) -> str:
    return "".join(Path(f"/proc/self/net/{name}").read_text() for name in ("unix", "tcp", "udp"))


# --- the first process of its world ---------------------------------------------------------------


def open_files_of_parent(trial_dir: Path) -> list[int]:
    """Return which files of its parent can be opened to write, by descriptor."""
    opened = []
    for number in range(_MOST_FILES):
        with contextlib.suppress(OSError):
            os.close(os.open(f"/proc/{os.getppid()}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK))
            opened.append(number)
    return opened


def meddle_with_parent(trial_dir: Path, way: str) -> str:
    """Reach into its parent without changing it."""
    parent = os.getppid()
    if way == "name a file":
        return str(Path(f"/proc/{parent}/fd/1").readlink())
    if way == "open memory":
        return open_to_write(trial_dir, f"/proc/{parent}/mem")
    if way == "read memory":
        libc = ctypes.CDLL(None)
        local = ctypes.create_string_buffer(8)
        vectors = [(ctypes.c_size_t * 2)(ctypes.addressof(one), 8) for one in (local, libc.getpid)]
        return str(call_kernel("process_vm_readv", parent, vectors[0], 1, vectors[1], 1, 0))
    if way == "trace":
        call_kernel("ptrace", _SEIZE, parent, 0, 0)
        return "traced"
    if way == "take a file":
        return str(call_kernel("pidfd_getfd", os.pidfd_open(parent), 2, 0))
    raise ValueError(way)


WAYS_TO_PARENT = ("name a file", "open memory", "read memory", "take a file", "trace")


def forge_everywhere(trial_dir: Path, code: int) -> None:
    """Write that the command has ended well to every file of every process, and exit."""
    pids = {1, os.getpid(), os.getppid()}
    with contextlib.suppress(PermissionError):  # where /proc is the machine's
        pids.update(tell_processes(trial_dir))
    for pid in pids:
        for number in range(3, _MOST_FILES):
            with contextlib.suppress(OSError):
                descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
                os.write(descriptor, FORGED)
    for number in range(3, _MOST_FILES):
        with contextlib.suppress(OSError):
            os.write(number, FORGED)
    for number in signal.valid_signals() - {signal.SIGTERM}:
        with contextlib.suppress(OSError):
            os.kill(os.getppid(), number)
    sys.exit(code)


# --- namespaces and mounts ------------------------------------------------------------------------


def _attributes(cleared: int) -> Any:
    return (ctypes.c_uint64 * 4)(0, cleared, 0, 0)


CALLS_ON_MOUNTS: dict[str, Callable[[bytes], tuple[object, ...]]] = {
    "umount2": lambda cover: (cover, _DETACH),
    "mount": lambda cover: (None, b"/", None, _REMOUNT_BIND, None),
    "mount_setattr": lambda cover: (_HERE, b"/", 0, _attributes(_READ_ONLY), 32),
    "pivot_root": lambda cover: (b".", b"."),
    "open_tree": lambda cover: (_HERE, cover, 1),
    "chroot": lambda cover: (b"/proc",),
}


def change_mounts(trial_dir: Path, cover: str, *, as_owner: bool = False) -> dict[str, int]:
    """Return the errno, or 0, of calls that would uncover a path or make the root writable.

    :param as_owner: of a user namespace of its own, with every capability in there.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        got: dict[str, int] = {}
        if as_owner:
            got["unshare"] = _error_of("unshare", _NEW_USER | _NEW_MOUNTS)
        for name, given in CALLS_ON_MOUNTS.items():
            got[name] = _error_of(name, *given(os.fsencode(cover)))
        os.write(writer, json.dumps(got).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        found: dict[str, int] = json.load(told)
    return found


def _error_of(name: str, *arguments: object) -> int:
    try:
        call_kernel(name, *arguments)
    except OSError as error:
        return error.errno or -1
    return 0


def enter_namespaces_of_parent(trial_dir: Path) -> str:
    call_kernel("setns", os.pidfd_open(os.getppid()), _NEW_MOUNTS)
    return "entered"


def unshare_user(trial_dir: Path) -> str:
    if os.fork() == 0:
        try:
            call_kernel("unshare", _NEW_USER)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if code:
        raise OSError(code, os.strerror(code))
    return "unshared"


# --- modes that last ------------------------------------------------------------------------------


def set_id(trial_dir: Path, way: str) -> int:
    """Try to leave a file that runs as its owner; return its mode."""
    path = trial_dir / f"program-{way}"
    mode = 0o4755
    if way == "created":
        # Without the capability the kernel takes the bit away from what is written to.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, mode), "wb") as file:
            file.write(b"#!/bin/sh\n")
        return path.stat().st_mode
    path.write_bytes(b"#!/bin/sh\n")
    if way == "chmod":
        os.chmod(path, mode)  # noqa: PTH101 (this call)
    elif way == "fchmod":
        with path.open("rb") as file:
            os.fchmod(file.fileno(), mode)
    elif way == "fchmodat":
        folder = os.open(trial_dir, os.O_RDONLY)
        os.chmod(path.name, mode, dir_fd=folder)
    elif way == "fchmodat2":
        call_kernel("fchmodat2", _HERE, os.fsencode(path), mode, 0)
    elif way == "group":
        os.chmod(path, 0o2755)  # noqa: PTH101
    return path.stat().st_mode


WAYS_TO_SET_ID = ("chmod", "fchmod", "fchmodat", "fchmodat2", "group", "created")


# --- lifetime and memory --------------------------------------------------------------------------


def outlive(trial_dir: Path, beat: str) -> None:
    """Leave processes that ignore signals, in sessions of their own, and add a line to ``beat``
    every hundredth of a second; then wait."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.closerange(0, _MOST_FILES)
                while True:
                    with Path(beat).open("a") as file:
                        file.write("x\n")
                    time.sleep(0.01)
            os._exit(0)
    time.sleep(600)


def fill_folder(trial_dir: Path, folder: str, mib: int) -> None:
    """Write to a file of a folder in memory that has no name any more."""
    with Path(folder, "hoard").open("wb", buffering=0) as file:
        Path(folder, "hoard").unlink()
        for _ in range(mib):
            file.write(bytes(1 << 20))
        time.sleep(30)


def map_shared_memory(trial_dir: Path, mib: int) -> None:
    """Hold a deleted file of /dev/shm by its mapping alone, no page of which is resident."""
    with Path("/dev/shm/hoard").open("w+b", buffering=0) as file:
        file.truncate(mib << 20)
        mapped = mmap.mmap(file.fileno(), mib << 20)
    Path("/dev/shm/hoard").unlink()
    _fill_unseen(mapped, mib)
    time.sleep(30)


def hold_shared_unseen(trial_dir: Path, mib: int) -> None:
    """Hold shared anonymous memory that no process has resident."""
    mapped = mmap.mmap(-1, mib << 20)
    _fill_unseen(mapped, mib)
    time.sleep(3)


def _fill_unseen(mapped: mmap.mmap, mib: int) -> None:
    for number in range(mib):
        mapped[number << 20 : (number + 1) << 20] = b"x" * (1 << 20)
        mapped.madvise(mmap.MADV_DONTNEED, number << 20, 1 << 20)


def hold_in_flight(trial_dir: Path, mib: int) -> None:
    """Hold memfds that are open nowhere: they have been sent through a socket and not received."""
    here, there = socket.socketpair()
    for _ in range(mib >> 4):
        piece = os.memfd_create("piece")
        for _ in range(16):
            os.write(piece, bytes(1 << 20))
        rights = array.array("i", [piece])
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(piece)
    time.sleep(3)
    there.close()


def on_a_world() -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """Return attacks that no world lets happen, with their arguments."""
    return [
        *((meddle_with_parent, {"way": way}) for way in WAYS_TO_PARENT),
        (enter_namespaces_of_parent, {}),
        (unshare_user, {}),
        (make_device, {}),
        (open_to_write, {"path": "/proc/sys/kernel/core_pattern"}),
        (open_to_write, {"path": "/proc/sysrq-trigger"}),
        *((set_id, {"way": way}) for way in WAYS_TO_SET_ID if way != "created"),
    ]
