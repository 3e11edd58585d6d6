"""What a disk that refuses is called."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from autoresearch.errors import MachineryError


@contextlib.contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn a refusal of the disk into one sentence.

    :raises MachineryError: for an OSError within.
    """
    try:
        yield
    except OSError as error:
        mend = "free some space" if error.errno == errno.ENOSPC else "make it writable"
        raise MachineryError(
            f"cannot write a corpus under {directory}: {error.strerror or error}; {mend}, or "
            "choose another folder"
        ) from error
