"""The few calls of the C library that Python does not offer."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def check(returned: int, what: str) -> None:
    """Turn a C call's -1 into the OSError of its errno."""
    if returned == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


_KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Free ``length`` bytes of a file, which read as zeros then; False where that cannot be."""
    if sys.platform != "linux" or length <= 0:
        return False
    off_t = ctypes.c_int64
    returned = libc().fallocate(fd, _KEEP_SIZE_AND_PUNCH_HOLE, off_t(offset), off_t(length))
    return int(returned) == 0
