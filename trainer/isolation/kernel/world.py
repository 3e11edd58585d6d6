"""Build a command's world: namespaces in which nothing outside the trial has a name.

The command sees its own processes in /proc, a root on which it can change nothing but its own
directory, a /tmp and a /dev/shm of its own, and a network of one loopback interface. So it may do
what ordinary programs do (change modes, connect sockets, send signals, name threads, start CUDA's
driver in a child) without reaching anything outside, and all of its processes end with the first.

The root holds only the paths that the trial is granted (:mod:`trainer.isolation.kernel.landlock`),
each at its own place. This is what bubblewrap does (github.com/containers/bubblewrap). Its program
is not used: it starts a program, but a script with preloaded modules runs in a fork.

What a namespace does not separate is closed here:

* /proc/sys and other settings of the machine, which root may write, are read-only;
* a Unix socket with a path belongs to no network namespace: sockets of this machine's processes are
  covered by an empty file. One that is created later in a granted directory is not, nor one with a
  relative path whose process has moved on.

Sources: namespaces(7), pid_namespaces(7), mount_setattr(2), pivot_root(2), proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoresearch.code import module_command, package_root
from trainer.isolation.kernel.bpf import ARCHITECTURES
from trainer.isolation.kernel.libc import check, libc

_USER, _PID, _MOUNT, _NET, _IPC = 0x10000000, 0x20000000, 0x00020000, 0x40000000, 0x08000000
_PRIVATE = 0x4000 | 1 << 18  # MS_REC | MS_PRIVATE
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8  # of MS_* and MOUNT_ATTR_* alike
_CLONE, _RECURSIVE, _EMPTY_PATH, _FROM_EMPTY_PATH = 1, 0x8000, 0x1000, 4
_DETACH = 2
_HERE = -100  # AT_FDCWD
_SET_INTERFACE_FLAGS, _UP = 0x8914, 1

_BASE = "/proc"
"""Place of the new root before it becomes the root: a directory of every machine."""
_COVERS = ".closed"
_MOST_FILES = 1 << 20
_MOST_LINKS = 40
SHARED_MEMORY = Path("/dev/shm")
TEMPORARY = Path("/tmp")
OWN = (TEMPORARY, SHARED_MEMORY)
"""Directories that each world has for itself, in memory of one size."""
ROOT = Path("/")
HOSTS = Path("/etc/hosts")
PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class Plan:
    """The contents of a world."""

    readable: Collection[Path]
    """Paths of this machine, free of links, that the world has at the same place."""
    writable: Collection[Path]
    devices: Collection[Path]
    covered: Collection[str]
    """Paths below the others, files and folders, that are empty in the world."""
    names: Collection[Path]
    """Paths as the command may write them: the links on the way to them are there, too."""
    size_bytes: int | None
    """Most bytes that /tmp and /dev/shm may hold together; None: half of the machine's memory."""


@cache
def refusal() -> str:
    """Return why this machine allows no world; empty if it does. Another process tries it."""
    tried = subprocess.run(
        module_command(__name__),
        cwd=package_root(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return ""
    return (tried.stderr.strip().splitlines() or ["it ended without a word"])[-1]


def separate_children() -> None:
    """Make the next child of this process the first of a PID namespace.

    A process without CAP_SYS_ADMIN enters a user namespace for this; it has one thread.

    :raises OSError: if the kernel refuses.
    """
    if libc().unshare(_PID) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    check(libc().unshare(_PID | _USER), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def enter(plan: Plan) -> None:
    """Move this process, the first of its PID namespace, into a new world.

    The caller drops the capabilities, with which all of this could be undone.

    :raises OSError: if the kernel refuses.
    """
    places = _places(plan)
    # Looked up first: the new root and the new network hide what is outside.
    covers = _covers(plan, places)
    links = dict(_links_to(plan.names))
    host = socket.gethostname()
    check(libc().unshare(_MOUNT | _NET | _IPC), "unshare")
    _raise_loopback()
    check(libc().mount(b"none", b"/", None, _PRIVATE, None), "mount")
    trees = {path: _clone(path, flags, below=True) for path, flags in places.items()}
    size = "50%" if plan.size_bytes is None else plan.size_bytes
    options = f"size={size},nr_inodes={_MOST_FILES},mode=755"
    _mount("tmpfs", _BASE, _NO_SUID | _NO_DEVICES, options)
    os.chdir(_BASE)
    _mount_proc()
    _make_own(host)
    _attach_all(trees, covers)
    for link, target in links.items():
        place = link.lstrip("/")
        if not os.path.lexists(place):
            _make_place(os.path.dirname(place), is_folder=True)
            os.symlink(target, place)
    check(_call("pivot_root", b".", b"."), "pivot_root")
    check(libc().umount2(b".", _DETACH), "umount2")
    os.chdir("/")
    # Last, since places for mounts are made in the root and in covered folders.
    for path in ("/", *(path for path, is_folder in covers.items() if is_folder)):
        mounted = os.open(path, os.O_PATH | os.O_CLOEXEC)
        _set_flags(mounted, _READ_ONLY)
        os.close(mounted)


# --- which paths --------------------------------------------------------------------------------


def _places(plan: Plan) -> dict[str, int]:
    """Return the paths to mount and the flags of each: those that no other one holds already."""
    wanted = {
        **{str(path): _NO_SUID | _NO_DEVICES | _READ_ONLY for path in plan.readable},
        **{str(path): _NO_SUID | _NO_DEVICES for path in plan.writable},
        **{str(path): _NO_SUID for path in plan.devices},
    }
    kept: dict[str, int] = {}
    for path in sorted(wanted):  # a folder comes before what is below it
        above = next((one for one in _and_above(path) if one in kept or one in plan.covered), "")
        if kept.get(above) != wanted[path] and os.path.exists(path):
            kept[path] = wanted[path]
    return kept


def _covers(plan: Plan, places: Mapping[str, int]) -> dict[str, bool]:
    """Return what is covered in these places: whether each path is a folder."""
    covers = {}
    for path in {*plan.covered, *_sockets()}:
        if path in places or places.keys().isdisjoint(_and_above(path)):
            continue
        with_type = os.lstat(path).st_mode if os.path.lexists(path) else stat.S_IFLNK
        if not stat.S_ISLNK(with_type):  # its target is as open as its own place makes it
            covers[path] = stat.S_ISDIR(with_type)
    return covers


def _sockets() -> Iterator[str]:
    """Yield the paths of Unix sockets that processes of this network namespace have bound.

    A relative one is sought where any process is now, since the table does not say whose it is.
    """
    with Path("/proc/self/net/unix").open(encoding="utf-8", errors="surrogateescape") as table:
        fields = [line.rstrip("\n").split(maxsplit=7) for line in table]
    bound = {each[7] for each in fields if len(each) == 8 and not each[7].startswith("@")}
    relative = {name for name in bound if not name.startswith("/")}
    folders = set()
    for process in os.scandir("/proc") if relative else ():
        with contextlib.suppress(OSError):  # it is no process, has gone, or is another user's
            folders.add(os.readlink(f"{process.path}/cwd"))
    wherever = {os.path.join(folder, name) for folder in folders for name in relative}
    real = cache(os.path.realpath)  # many share a folder, and a socket is no link itself
    for path in (bound - relative) | wherever:
        folder, name = os.path.split(path)
        yield os.path.join(real(folder), name)


def _links_to(names: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield each link on the way to these paths, with its target."""
    left = [(str(name), 0) for name in names] + [(entry.path, 0) for entry in os.scandir("/")]
    while left:
        name, depth = left.pop()
        for path in reversed(list(_and_above(os.path.normpath(name)))):
            if os.path.islink(path) and depth < _MOST_LINKS:
                target = os.readlink(path)
                yield path, target
                rest = name[len(path) :].lstrip("/")
                left.append((os.path.join(os.path.dirname(path), target, rest), depth + 1))
                break


def _and_above(path: str) -> Iterator[str]:
    """Yield an absolute path and each folder above it but the root."""
    while len(path) > 1:
        yield path
        path = os.path.dirname(path)


# --- the new root, which is the current directory -----------------------------------------------


def _mount_proc() -> None:
    """Mount the processes of this PID namespace, and make everything else in there read-only."""
    Path("proc").mkdir()
    _mount("proc", "proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    for entry in os.scandir("proc"):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        if entry.is_dir() or entry.stat().st_mode & 0o222:
            _attach(_clone(entry.path, _READ_ONLY, below=True), entry.path)


def _make_own(host: str) -> None:
    for place, closed in (("tmp", 0), ("dev/shm", _NO_PROGRAMS)):
        os.makedirs(place)
        os.chmod(place, 0o1777)
        _attach(_clone(place, _NO_SUID | _NO_DEVICES | closed), place)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"dev/{name}")
    os.makedirs("etc")
    Path("etc/hosts").write_text(f"127.0.0.1 localhost {host}\n::1 localhost\n")


def _attach_all(trees: dict[str, int], covers: dict[str, bool]) -> None:
    """Attach the trees, each where its path was, and cover what is closed in them."""
    Path(_COVERS).mkdir()
    Path(_COVERS, "file").touch(0)
    for number, path in enumerate(sorted({*trees, *covers})):
        place = path.lstrip("/")
        if path in trees:
            _make_place(place, is_folder=stat.S_ISDIR(os.fstat(trees[path]).st_mode))
            _attach(trees[path], place)
        elif covers[path]:
            cover = Path(_COVERS, str(number))
            cover.mkdir()
            _attach(_clone(str(cover), _NO_SUID | _NO_DEVICES), place)
        else:
            _attach(_clone(f"{_COVERS}/file", _NO_SUID | _NO_DEVICES | _READ_ONLY), place)


def _make_place(place: str, *, is_folder: bool) -> None:
    os.makedirs((place if is_folder else os.path.dirname(place)) or ".", exist_ok=True)
    if not is_folder and not os.path.lexists(place):
        Path(place).touch()


# --- calls --------------------------------------------------------------------------------------


def _mount(kind: str, place: str, flags: int, options: str = "") -> None:
    given = kind.encode(), os.fsencode(place), kind.encode(), flags, options.encode()
    check(libc().mount(*given), f"mount {kind}")


def _clone(path: str, flags: int, *, below: bool = False) -> int:
    """Return a descriptor of a new mount of that path, and of the mounts below it if wanted."""
    how = _CLONE | os.O_CLOEXEC | (_RECURSIVE if below else 0)
    tree = _call("open_tree", _HERE, os.fsencode(path), how)
    check(tree, f"open_tree {path}")
    _set_flags(tree, flags, below=below)
    return tree


def _set_flags(tree: int, flags: int, *, below: bool = False) -> None:
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    how = _EMPTY_PATH | (_RECURSIVE if below else 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    check(_call("mount_setattr", tree, b"", how, ctypes.byref(attributes), size), "mount_setattr")


def _attach(tree: int, place: str) -> None:
    moved = _call("move_mount", tree, b"", _HERE, os.fsencode(place), _FROM_EMPTY_PATH)
    check(moved, f"move_mount {place}")
    os.close(tree)


def _call(name: str, *arguments: object) -> int:
    number = ARCHITECTURES[platform.machine()].number(name)
    return int(libc().syscall(number, *arguments))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", _UP)
        fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, request)


def main() -> None:
    """Try it in a child, whose exit code tells whether it works."""
    separate_children()
    child = os.fork()
    if child == 0:
        enter(Plan((), (), (Path(os.devnull),), (), (), size_bytes=1 << 20))
        os._exit(0 if os.getpid() == 1 and Path("/proc/1/comm").exists() else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.strerror}")
