"""What a disk that refuses is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import MachineryError


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
