"""Ask for a campaign's views in a process of its own, which ends in time.

The progress handler of :mod:`trajectory.history.views` ends most queries. A single call of an SQL
function, which it cannot interrupt, ends with the process.
"""

from pathlib import Path
from typing import Any

from autoresearch.errors import HistoryError
from autoresearch.limited import OutOfTimeError, answer, begin_limits, run
from trajectory.history.views import LIMIT_S, MOST_ROWS, Cell, QueryResult, open_views, too_long

MOST_MEMORY_BYTES = 2 << 30
"""Memory that a query may take, for temporary tables too, besides the index."""
_GRACE_S = 1.0
"""Seconds in which the progress handler comes first, with a better message."""


def columns(journal: Path) -> dict[str, list[str]]:
    """Return the names of each view's columns.

    :raises JournalError: if the journal is damaged.
    """
    found = _ask(journal, None, most=0, limit_s=LIMIT_S)
    return {str(name): list(names) for name, names in found.items()}


def query(
    journal: Path, sql: str, *, most: int = MOST_ROWS, limit_s: float = LIMIT_S
) -> QueryResult:
    """Run one SELECT over a campaign's views and return at most ``most`` rows.

    :raises JournalError: if the journal is damaged.
    :raises HistoryError: if the query is refused, invalid or takes too long.
    """
    found = _ask(journal, sql, most=most, limit_s=limit_s)
    rows = [tuple(map(_read, row)) for row in found["rows"]]
    return QueryResult(tuple(found["columns"]), rows, found["cut"])


def _ask(journal: Path, sql: str | None, *, most: int, limit_s: float) -> dict[str, Any]:
    request = {"journal": str(journal.absolute()), "sql": sql, "most": most}
    try:
        found: dict[str, Any] = run(__name__, request, limit_s=limit_s)
    except OutOfTimeError:
        raise HistoryError(too_long(limit_s)) from None
    return found


def _answer(request: dict[str, Any], _: bytes) -> dict[str, Any]:
    with open_views(Path(request["journal"])) as views:
        begin_limits(
            request["limit_s"] + _GRACE_S, file_bytes=0, more_memory_bytes=MOST_MEMORY_BYTES
        )
        if request["sql"] is None:
            return views.columns()
        found = views.query(request["sql"], most=request["most"], limit_s=request["limit_s"])
        rows = [list(map(_written, row)) for row in found.rows]
        return {"columns": found.columns, "rows": rows, "cut": found.cut}


def _written(cell: Cell) -> Any:
    """Return a cell for JSON, which has no bytes."""
    return {"hex": cell.hex()} if isinstance(cell, bytes) else cell


def _read(cell: Any) -> Cell:
    found: Cell = bytes.fromhex(cell["hex"]) if isinstance(cell, dict) else cell
    return found


if __name__ == "__main__":
    answer(_answer)
