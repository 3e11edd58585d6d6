"""A file that somebody else put there: opened without waiting, read whole where it has an end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 16 << 20


def read_given(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """What a regular file holds. A pipe is not waited for and a device not read.

    :raises OSError: where it cannot be read, is no regular file, or is larger than ``most_bytes``;
        ``strerror`` says which.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB", str(path))
    return data


def open_regular(path: Path, *, through_links: bool = True) -> int:
    """A descriptor to read a regular file by.

    :param through_links: False where whoever could have put a link there is not trusted.
    :raises OSError: where it cannot be read or is no regular file; ``strerror`` says which.
    """
    # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags if through_links else flags | os.O_NOFOLLOW)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file but a device or a pipe", str(path))
