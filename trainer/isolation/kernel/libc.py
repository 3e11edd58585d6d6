"""Call the C library where Python offers no function."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path


@cache
def libc() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def check(returned: int, what: str) -> None:
    """Turn a C call's -1 into the OSError of its errno."""
    if returned == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files or directories of one file system atomically. False if unsupported.

    :raises OSError: if the system refuses.
    """
    renameat2 = getattr(libc(), "renameat2", None)
    if sys.platform != "linux" or renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.ENOSYS, errno.EINVAL}:
        return False
    raise OSError(number, os.strerror(number), str(other))


_KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Free ``length`` bytes of a file, which then read as zeros; False if unsupported."""
    if sys.platform != "linux" or length <= 0:
        return False
    off_t = ctypes.c_int64
    returned = libc().fallocate(fd, _KEEP_SIZE_AND_PUNCH_HOLE, off_t(offset), off_t(length))
    return int(returned) == 0


_MADV_COLLAPSE = 25


def use_huge_pages() -> None:
    """Put this process's heap on huge pages, where the kernel has them: a fork then copies and
    frees one entry for 512 pages.

    A huge page has 2 MiB where pages have 4 KiB. Where they have 64 KiB it has 512 MiB, most of
    which would be empty: there nothing changes.
    """
    if sys.platform != "linux" or os.sysconf("SC_PAGE_SIZE") != 4096:
        return
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode = line.split()[:5]
        if (access, inode) == ("rw-p", "0"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            length = ctypes.c_size_t(end - start)
            libc().madvise(ctypes.c_void_p(start), length, _MADV_COLLAPSE)
