"""What a disk that refuses is called, and files that are replaced in one step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoresearch.errors import MachineryError


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn a refusal of the disk into one sentence.

    :raises MachineryError: for an OSError within.
    """
    try:
        yield
    except OSError as error:
        raise MachineryError(
            f"cannot write the campaign in {directory}: {error.strerror or error}; free some "
            "space, make it writable, or name another directory with --campaign"
        ) from error


def replace_file(path: Path, data: bytes | str, *, durable: bool = False) -> None:
    """Give a file new content in one step: whoever reads it sees the old or the new, never half.

    :param durable: on return the new content would survive a power cut.
    :raises OSError: where the disk refuses; the file is as it was.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if durable:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
