"""Read an untrusted file without blocking, up to a size limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 16 << 20


def read_given(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file, without waiting for a pipe or reading a device.

    :raises OSError: if it cannot be read, is not a regular file, or is larger than ``most_bytes``;
        ``strerror`` says which.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB", str(path))
    return data


def open_regular(path: Path, *, through_links: bool = True) -> int:
    """Return a descriptor that reads a regular file.

    :param through_links: False if whoever could have put a link there is not trusted.
    :raises OSError: if it cannot be read or is not a regular file; ``strerror`` says which.
    """
    # Without O_NONBLOCK, opening a pipe without a writer would block forever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags if through_links else flags | os.O_NOFOLLOW)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file", str(path))
