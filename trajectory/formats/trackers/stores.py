"""Read a tracker's folder, or its SQLite database from a copy in memory."""

import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Self

from autoresearch.errors import FormatError
from autoresearch.files import read_given
from trajectory.formats.source import MOST_BYTES, Source

MOST_FILES = 200_000


@dataclass(frozen=True, eq=False)
class Folder(Source):
    """The regular files of a folder; ``data`` is the list of their hashes."""

    files: dict[Path, bytes] = field(default_factory=dict)
    """Content by path relative to the folder, sorted by path."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the files that may belong to a tracker's store. Links are not followed.

        :raises FormatError: if one cannot be read, or they are too many or too large.
        """
        files: dict[Path, bytes] = {}
        left = MOST_BYTES
        try:
            for file in sorted(_of_trackers(path)):
                data = read_given(file, left)
                left -= len(data)
                files[file.relative_to(path)] = data
                if len(files) > MOST_FILES:
                    raise FormatError(f"{path} has more than {MOST_FILES:,} files; import a part")
        except OSError as error:
            raise FormatError(
                f"{error.filename or path} cannot be imported: {error.strerror or error}; give a "
                "folder of at most 1 GiB that can be read"
            ) from error
        lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
        return cls(path, "".join(lines).encode("utf-8", "replace"), files)

    def text(self, file: Path) -> str:
        """Return a file's content as text."""
        return self.files[file].decode("utf-8", "replace")


def _of_trackers(path: Path) -> list[Path]:
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            inner = file.relative_to(path).parts
            is_event = "tfevents" in name
            is_mlflow = name == "meta.yaml" or (
                len(inner) > 3 and inner[2] in {"params", "metrics"}
            )
            if (is_event or is_mlflow) and stat.S_ISREG(file.lstat().st_mode):
                found.append(file)
    return found


MAGIC = b"SQLite format 3\0"
LIMIT_S = 60.0
_WRONG = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors that values of unexpected types lead to."""


class Database:
    """The tables of an untrusted SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._connection.execute(sql, values).fetchall()

    def tables(self) -> set[str]:
        """Return the names of its tables."""
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type='table'")}


@contextmanager
def opened(source: Source) -> Iterator[Database]:
    """Open a copy of a SQLite file in memory.

    :raises FormatError: if it is damaged, lacks a table, holds values of other types, or keeps a
        query busy for a minute.
    """
    data = bytearray(source.data)
    data[18:20] = b"\1\1"  # in memory there is no write-ahead log
    end = monotonic() + LIMIT_S
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.deserialize(bytes(data))
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA query_only=ON")
            connection.set_progress_handler(lambda: monotonic() > end, 10_000)
            yield Database(connection)
        except (sqlite3.Error, *_WRONG) as error:
            raise FormatError(
                f"{source.path} cannot be read as a tracker's database ({str(error)[:200]!r}); "
                "choose another file, or restore it from a copy"
            ) from error
