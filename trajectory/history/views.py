"""Answer SQL about a campaign, with queries that end.

A query can read the views and the tables below them. It cannot write, attach a file, change a
setting or run for ever.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from autoresearch.errors import HistoryError
from trajectory.history import tables
from trajectory.history.store import History
from trajectory.history.view_definitions import VIEWS
from trajectory.reading import Results

Cell: TypeAlias = str | int | float | bytes | None

LIMIT_S = 60.0
"""Seconds that a query may take."""
MOST_ROWS = 100_000
MOST_BYTES = 256 << 20
"""Most text that an answer may hold."""
_CELL_BYTES = 40
"""Memory of a cell besides its text."""
_MOST_CELL_BYTES = 16 << 20
_MOST_PATTERN_BYTES = 1000
"""Longest pattern of LIKE and GLOB, whose comparison with one text cannot be interrupted."""
_STEPS = 10_000
"""Instructions of SQLite's machine between two looks at the clock."""
_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    cut: bool
    """Whether there were more rows than asked for."""


class Views:
    """A campaign's history with the views, open for queries. Create it with :func:`open_views`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def columns(self) -> dict[str, list[str]]:
        """Return the names of each view's columns."""
        return {name: list(self.query(f"SELECT * FROM {name} LIMIT 0").columns) for name in VIEWS}

    def query(self, sql: str, *, most: int = MOST_ROWS, limit_s: float = LIMIT_S) -> QueryResult:
        """Run one SELECT and return at most ``most`` rows.

        :raises HistoryError: if it is refused, invalid or takes longer than ``limit_s``.
        """
        end = monotonic() + limit_s
        self._connection.set_progress_handler(lambda: monotonic() > end, _STEPS)
        try:
            cursor = self._connection.execute(sql)
            if cursor.description is None:
                raise HistoryError("the query is empty; write one SELECT, such as: " + EXAMPLE)
            columns = tuple(name for name, *_ in cursor.description)
            rows, cut = _bounded(cursor, most)
        except (sqlite3.Error, sqlite3.Warning, *_TOO_LARGE) as error:
            raise HistoryError(_refusal(error, limit_s)) from error
        finally:
            self._connection.set_progress_handler(None, 0)
        return QueryResult(columns, rows, cut)


_TOO_LARGE = (ValueError, OverflowError, MemoryError)
EXAMPLE = "SELECT iter, delta, stderr FROM iterations WHERE action = 'keep'"


@contextmanager
def open_views(journal: Path) -> Iterator[Views]:
    """Open the views of a journal's campaign, in an index built in memory.

    :raises JournalError: if the journal is damaged.
    """
    results = Results(journal)
    with History(tables.MEMORY, journal) as history:
        history.catch_up()
        with history.views(results) as connection:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MOST_PATTERN_BYTES)
            connection.set_authorizer(_authorize)
            try:
                yield Views(connection)
            finally:
                connection.set_authorizer(None)


def _authorize(action: int, name: str | None, detail: str | None, *_: object) -> int:
    loads = action == sqlite3.SQLITE_FUNCTION and detail == "load_extension"
    return sqlite3.SQLITE_OK if action in _ALLOWED and not loads else sqlite3.SQLITE_DENY


def _bounded(cursor: sqlite3.Cursor, most: int) -> tuple[list[tuple[Cell, ...]], bool]:
    """Read at most so many rows, and return whether there are more.

    :raises ValueError: if they hold more text than :data:`MOST_BYTES`.
    """
    rows: list[tuple[Cell, ...]] = []
    size = 0
    for row in cursor:
        if len(rows) == most:
            return rows, True
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        size += _CELL_BYTES * len(row)
        if size > MOST_BYTES:
            raise ValueError(f"the answer holds more than {MOST_BYTES >> 20} MiB")
        rows.append(row)
    return rows, False


def too_long(limit_s: float) -> str:
    """Return the sentence for a query that took longer than this."""
    return f"the query took longer than {limit_s:g} s; select less, or add a LIMIT"


def _refusal(error: Exception, limit_s: float) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_INTERRUPT:
        return too_long(limit_s)
    if isinstance(error, MemoryError):
        return "the query needs too much memory; select less, or add a LIMIT"
    if code == sqlite3.SQLITE_AUTH or "readonly" in str(error):
        return f"the query is not allowed ({error}); only SELECT over {', '.join(VIEWS)} is"
    known = "run autoresearch sql without a query for the views and their columns"
    return f"the query failed ({str(error)[:300]}); {known}"
