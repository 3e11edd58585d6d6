"""Read a SQLite database from its bytes, so that the file is neither locked nor changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from time import monotonic
from typing import Any

from autoresearch.errors import FormatError
from trajectory.formats.source import Source

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
