"""Open a name below a folder without following a link, wherever on the way it stands."""

import ctypes
import errno
import os
from pathlib import Path

A_LINK = "it is a link or lies behind one, and no link in a campaign is followed"


def refused(number: int, why: str, name: str) -> OSError:
    """Return the error for an entry that is not opened; ``strerror`` is ``why``."""
    return OSError(number, why, name)


def open_beneath(folder: int, name: str, flags: int, mode: int = 0o644) -> int:
    """Return a descriptor of ``name`` below the folder of a descriptor.

    :raises OSError: if there is none, or a link or ``..`` is on the way.
    """
    if "\0" in name:
        raise refused(errno.EINVAL, "its name holds a zero byte", name)
    try:
        try:
            return _openat2(folder, name, flags, mode)
        except OSError as error:
            # A kernel before 5.6 has no such call, and an old container forbids it.
            if error.errno not in {errno.ENOSYS, errno.EPERM}:
                raise
        return _walk(folder, name, flags, mode)
    except OSError as error:
        why = {
            errno.ELOOP: A_LINK,
            errno.ENOTDIR: "it is not a folder, or lies in something that is none",
            errno.EXDEV: "it lies outside the campaign",
        }.get(error.errno or 0)
        raise error if why is None else refused(error.errno or 0, why, name) from error


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_OPENAT2 = 437
"""The number of the system call, the same on every architecture."""
_RESOLVE = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS."""
_libc = ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, name: str, flags: int, mode: int) -> int:
    creates = flags & os.O_CREAT
    how = _OpenHow(flags, mode if creates else 0, _RESOLVE)
    size = ctypes.sizeof(how)
    while True:
        found = _libc.syscall(_OPENAT2, folder, os.fsencode(name), ctypes.byref(how), size)
        if found >= 0:
            return int(found)
        number = ctypes.get_errno()
        if number not in {errno.EINTR, errno.EAGAIN}:
            raise OSError(number, os.strerror(number), name)


def _walk(folder: int, name: str, flags: int, mode: int) -> int:
    """Open a name below a folder one part at a time."""
    *above, last = Path(name).parts
    if last == ".." or ".." in above or Path(name).is_absolute():
        raise refused(errno.EXDEV, os.strerror(errno.EXDEV), name)
    here = os.dup(folder)
    try:
        for part in above:
            below = os.open(part, os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=here)
    finally:
        os.close(here)
