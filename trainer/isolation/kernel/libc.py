"""Call the C library where Python offers no function."""

import ctypes
import os
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


_KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Free ``length`` bytes of a file, which then read as zeros; False if unsupported."""
    if length <= 0:
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
    if os.sysconf("SC_PAGE_SIZE") != 4096:
        return
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode = line.split()[:5]
        if (access, inode) == ("rw-p", "0"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            length = ctypes.c_size_t(end - start)
            libc().madvise(ctypes.c_void_p(start), length, _MADV_COLLAPSE)


_CAPABILITY_VERSION_3 = 0x20080522
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def drop_capabilities(keep: int = _KEPT_CAPABILITIES) -> None:
    """Keep only the capabilities for reading a user's files (Landlock limits which), or those in
    ``keep``.

    :raises OSError: if the kernel refuses.
    """
    this_thread = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: lower halves, then upper
    check(libc().capget(this_thread, sets), "capget")
    kept = sets[1] & keep
    sets[:] = [kept, kept, 0, 0, 0, 0]
    check(libc().capset(this_thread, sets), "capset")
