"""A file that somebody named, read whole: never one without an end, and never one too large."""

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
    # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file but a device or a pipe", str(path))
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB", str(path))
    return data
