"""Keep the history: the journal's rows in SQL, for other programs and for a lab's server.

The history holds nothing that the journal does not, and no decision depends on it. A session writes
the campaign's rows anew when it begins, and then each row after the journal's own line. One process
writes it, the one that holds the campaign's lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from autoresearch.campaign_files import remove, rename
from autoresearch.closing import Closing
from autoresearch.errors import MachineryError
from trajectory.history import tables
from trajectory.history.tables import DamagedHistoryError, rows
from trajectory.history.view_definitions import create_views
from trajectory.journal import Journal, open_journal
from trajectory.lock import CampaignLock
from trajectory.reading import Results

_BATCH_ROWS = 500


def reindex(where: str | Path, journal: Path) -> Results:
    """Write a journal's history anew, under the campaign's lock, and return its results.

    A SQLite file gets the views too.

    :raises CampaignLockedError: while a loop runs in this campaign.
    :raises JournalError: if the journal is damaged.
    """
    with CampaignLock(journal.parent), Journal(journal), History(where, journal) as history:
        results = Results(journal)
        history.catch_up()
        if tables.sqlite_path(where) is not None:
            with history.views(results):
                pass
        return results


class History(Closing):
    """One campaign's rows, in a database that may hold others."""

    def __init__(self, where: str | Path, journal: Path) -> None:
        """Connect to a SQLite file at a path, to memory or to a database at a SQLAlchemy URL.

        :raises HistoryError: if this installation cannot reach such a database.
        """
        self.note: str | None = None
        """One sentence on what replaced a file that was no history; None if nothing did."""
        self._where = where
        self._journal = journal
        self._checked = False
        """Whether the file is one that this program made; a campaign may come from others."""
        self._engine = tables.connect(where)
        self._known: tuple[str, int, int] | None = None
        """The campaign's id, and how many bytes and lines of its journal the database holds; None
        until this process wrote them all."""

    def catch_up(self) -> None:
        """Write the journal's rows that are missing: all of them or none. The journal is sound.

        :raises MachineryError: if the disk is full.
        :raises HistoryError: if the database is unavailable; a later call adds the rows.
        """
        path = None if self._where == tables.MEMORY else tables.sqlite_path(self._where)
        try:
            if path is not None and path.parent == self._journal.parent and not self._checked:
                tables.check_file(path)
            self._checked = True
            self._catch_up()
        except DamagedHistoryError:
            if path is None:
                raise
            self._move_away(path)
            self._catch_up()

    def _catch_up(self) -> None:
        known, self._known = self._known, None
        with tables.translated(self._where), self._engine.begin() as connection:
            if known is None:
                tables.create(connection)
                known = self._forget(connection)
            if known is None:
                return
            campaign_id, end, line = known
            values: list[dict[str, Any]] = []
            for raw in self._lines(end):
                end, line = end + len(raw), line + 1
                key = {"campaign_id": campaign_id, "line": line}
                values.append({**key, "kind": json.loads(raw)["kind"], "json": raw[:-1].decode()})
                if len(values) == _BATCH_ROWS:
                    connection.execute(rows.insert(), values)
                    values = []
            if values:
                connection.execute(rows.insert(), values)
        self._known = campaign_id, end, line

    def _forget(self, connection: sa.Connection) -> tuple[str, int, int] | None:
        """Delete the campaign's rows, which may be of another past; None for an empty journal."""
        first = next(self._lines(0), None)
        if first is None:
            return None
        campaign_id = json.loads(first)["id"]
        connection.execute(rows.delete().where(rows.c.campaign_id == campaign_id))
        return campaign_id, 0, 0

    def _lines(self, offset: int) -> Iterator[bytes]:
        """Yield the journal's whole lines from a byte on."""
        try:
            with open_journal(self._journal) as file:
                file.seek(offset)
                for line in file:
                    if line.endswith(b"\n"):
                        yield line
        except FileNotFoundError:
            return

    @contextmanager
    def views(self, results: Results) -> Iterator[sqlite3.Connection]:
        """Create the views of a history in SQLite, and lend its connection."""
        campaign = results.campaign
        with tables.translated(self._where):
            held = self._engine.raw_connection()
            try:
                connection = cast(sqlite3.Connection, held.driver_connection)
                create_views(connection, campaign)
                yield connection
            finally:
                held.close()

    def close(self) -> None:
        """Close the history; calling it again is harmless."""
        self._engine.dispose()

    def _move_away(self, path: Path) -> None:
        """Rename a file that is no history of this layout, because its user may have named another
        program's file by mistake."""
        self._engine.dispose()
        try:
            rename(path.parent, path.name, f"{path.name}.damaged")
            for suffix in ("-wal", "-shm"):
                remove(path.parent, path.name + suffix)
        except OSError as error:
            raise MachineryError(
                f"cannot move the damaged history {path} out of the way ({error.strerror}); "
                "delete it by hand"
            ) from error
        self._engine = tables.connect(self._where)
        self.note = f"{path} was damaged or of another layout and was built anew from the journal"
