"""Keep the history: an index of the journal that answers queries without reading it whole.

The index holds nothing that the journal does not. It stores how many bytes of the journal each
campaign's rows come from, and the SHA-256 of those bytes. With these, opening the index detects
whether it is outdated; the missing rows are then added. It is rebuilt if the journal's earlier
bytes have changed, if it is damaged, or if it has another layout. One process writes it, the one
that holds the campaign's lock. Readers open it read-only and never block the writer.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from autoresearch.closing import Closing
from autoresearch.errors import HistoryError, JournalError, MachineryError
from trajectory.history import indexing, tables
from trajectory.history.indexing import Position
from trajectory.history.queries import Answer, Questions
from trajectory.history.tables import DamagedIndexError
from trajectory.journal import Record, batches, read_records
from trajectory.lock import CampaignLock
from trajectory.rows import Row, dump_row

_BATCH_ROWS = 500
_BATCH_BYTES = 8 << 20


class StaleIndexError(DamagedIndexError):
    """The database holds another state of the index than its writer left."""


def reindex(where: str | Path, journal: Path) -> Position:
    """Rebuild the history of a journal, under the campaign's lock, and return its position.

    :raises CampaignLockedError: while a loop runs in this campaign.
    :raises JournalError: if the journal is damaged.
    """
    with CampaignLock(journal.parent), History.open(where, journal, anew=True) as history:
        return history.position


class History(Questions, Closing):
    """One campaign's index in a database that may hold others. Create it with :meth:`open`."""

    def __init__(self, where: str | Path, journal: Path, *, readonly: bool) -> None:
        self.note: str | None = None
        """One sentence on why the index was rebuilt or is outdated; None if neither."""
        self._where = where
        self._journal = journal
        self._readonly = readonly
        self._engine = tables.connect(where, readonly=readonly)
        self._position = Position("")
        self._digest = hashlib.sha256()
        self._in_doubt = False
        """Whether a write or :meth:`_settle` failed. Then the database may or may not hold it, and
        may be a different one when it is available again."""

    @classmethod
    def open(
        cls, where: str | Path, journal: Path, *, readonly: bool = False, anew: bool = False
    ) -> History:
        """Open the history of this journal's campaign, at a SQLite file's path or SQLAlchemy URL.

        A writer's index is brought up to date with the journal. A reader gets the current index. If
        that is unusable, the reader gets an index built in memory, because readers write nothing.

        :param anew: whether to rebuild a writer's index from the journal's first line.

        :raises HistoryError: if the database cannot be reached, or a writer cannot write it.
        :raises JournalError: if the journal is damaged.
        """
        if readonly:
            return cls._open_reader(where, journal)
        history = cls(where, journal, readonly=False)
        try:
            try:
                history._settle(anew=anew)
            except DamagedIndexError as damage:
                history._repair(damage)
        except BaseException:
            history.close()
            raise
        return history

    @classmethod
    def _open_reader(cls, where: str | Path, journal: Path) -> History:
        history = cls(where, journal, readonly=True)
        size = journal.stat().st_size if journal.exists() else 0
        try:
            end = history.position.end
        except HistoryError as error:
            history.close()
            if tables.sqlite_path(where) is None and not isinstance(error, DamagedIndexError):
                raise
            return cls._in_memory(where, journal)
        if end > size or (size and not end):
            history.close()
            return cls._in_memory(where, journal)
        if end < size:
            history.note = (
                f"the history lacks the last {size - end} bytes of {journal}; the running loop, "
                "the next one or autoresearch reindex adds them"
            )
        return history

    @classmethod
    def _in_memory(cls, where: str | Path, journal: Path) -> History:
        history = cls(tables.MEMORY, journal, readonly=False)
        history._settle()
        history.note = (
            f"the history {tables.hidden(where)} does not match {journal}, so it was "
            "built in memory for this command; run autoresearch reindex to rebuild it"
        )
        return history

    def add(self, row: Row, journal_end: int | None = None) -> None:
        """Index the row just appended to the journal.

        :param journal_end: the journal's size including the row. If given, missed rows are detected
            and indexed too.
        :raises MachineryError: if the disk is full; the next opening then indexes the row.
        :raises HistoryError: if the database is unavailable; the row is indexed with the next one
            that can be.
        :raises JournalError: if the row cannot follow the whole journal before it.
        """
        raw = dump_row(row).encode() + b"\n"
        end = self._position.end + len(raw)
        try:
            if self._in_doubt:
                self._settle()
            elif journal_end is not None and journal_end != end:
                self.catch_up()
            else:
                self._index([Record(self._position.lines + 1, end, raw, row)])
        except DamagedIndexError as damage:
            self._repair(damage)
        except JournalError:
            if not self._position.lines:
                raise
            self._settle(anew=True)  # the index rather than the row may be wrong

    def catch_up(self) -> int:
        """Index every complete row beyond the index, and return how many there were."""
        before = self._position.lines
        records = read_records(self._journal, offset=self._position.end, line=before)
        whole = (record for record in records if record.raw.endswith(b"\n"))
        for batch in batches(whole, rows=_BATCH_ROWS, size=_BATCH_BYTES):
            self._index(batch)
        return self._position.lines - before

    def rebuild(self) -> None:
        """Delete this campaign's index and rebuild it from the journal's first line."""
        with self._transaction() as connection:
            indexing.forget(connection, indexing.campaign_id_of(self._journal))
        self._position = Position("")
        self._digest = hashlib.sha256()
        self.catch_up()

    @contextmanager
    def sqlite(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection of an index in SQLite."""
        with tables.translated(self._where):
            held = self._engine.raw_connection()
        try:
            yield cast(sqlite3.Connection, held.driver_connection)
        finally:
            held.close()

    def close(self) -> None:
        """Close the index; calling it again is harmless."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with tables.translated(self._where), self._engine.begin() as connection:
            yield connection

    def _ask(self, query: Callable[[sa.Connection, Position], Answer]) -> Answer:
        """Run a query; if a writer's database is unavailable, on an index built in memory.

        The journal holds everything, so the session continues.
        """
        if self._readonly:
            return self._asked(query)
        try:
            try:
                if self._in_doubt:
                    self._settle()
                return self._asked(query)
            except DamagedIndexError as damage:
                self._repair(damage)
                return self._asked(query)
        except (HistoryError, MachineryError):
            with self._in_memory(self._where, self._journal) as history:
                return history._asked(query)

    def _asked(self, query: Callable[[sa.Connection, Position], Answer]) -> Answer:
        with self._transaction() as connection:
            position = self._read_position(connection)
            self._expect(position)
            return query(connection, position)

    def _expect(self, found: Position) -> None:
        """Check that a writer's index is as the writer left it.

        No other process writes the index. A server may come back between two writes with an older
        backup or empty, without any write failing.

        :raises StaleIndexError: if the state differs.
        """
        mine = self._position
        if not self._readonly and (found.end, found.sha256) != (mine.end, mine.sha256):
            raise StaleIndexError(
                f"the history at {tables.hidden(self._where)} is not as this process left it "
                f"({found.end} bytes of {self._journal}, and {mine.end} were indexed); "
                "run autoresearch reindex"
            )

    def _read_position(self, connection: sa.Connection) -> Position:
        campaign_id = self._position.campaign_id or indexing.campaign_id_of(self._journal)
        return indexing.read_position(connection, campaign_id)

    def _settle(self, *, anew: bool = False) -> None:
        """Make a writer's index match the journal. Its state is uncertain until that is done."""
        self._in_doubt = True
        note = None
        with self._transaction() as connection:
            tables.create(connection)
            position = Position("") if anew else self._read_position(connection)
            if not anew and not indexing.is_whole(connection, position):
                anew, note = True, "it lacked rows that it should have"
        digest = None if anew else indexing.digest_of(self._journal, position.end)
        if digest is not None and digest.hexdigest() == position.sha256:
            self._position, self._digest = position, digest
            self.catch_up()
        else:
            self.rebuild()
            if not anew:
                note = f"the lines of {self._journal} that it was made from have changed since"
        self._in_doubt = False
        if note is not None:
            self.note = f"the history was built anew, because {note}"

    def _repair(self, damage: DamagedIndexError) -> None:
        """Replace an unusable index by a usable one, and keep one copy of a SQLite file.

        The copy protects a file of another kind that the user named by mistake.
        """
        if isinstance(damage, StaleIndexError):
            self._settle()
        elif (path := tables.sqlite_path(self._where)) is not None:
            self._engine.dispose()
            try:
                path.replace(path.with_name(f"{path.name}.damaged"))
                for suffix in ("-wal", "-shm"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
            except OSError as error:
                raise MachineryError(
                    f"cannot move the damaged history {path} out of the way ({error.strerror}); "
                    "delete it by hand"
                ) from error
            self._position = Position("")
            self._engine = tables.connect(self._where, readonly=False)
            self._settle()
            self.note = (
                f"{path} was damaged or of another layout and was built anew from the journal"
            )
        else:
            self._settle(anew=True)
            self.note = "the history was damaged and was built anew from the journal"

    def _index(self, records: Sequence[Record]) -> None:
        """Add rows that follow the indexed ones: all or none."""
        digest = self._digest.copy()
        for record in records:
            digest.update(record.raw)
        doubted, self._in_doubt = self._in_doubt, True
        with self._transaction() as connection:
            self._expect(self._read_position(connection))
            advanced = indexing.write(connection, self._position, records)
            advanced = replace(advanced, sha256=digest.hexdigest())
            indexing.write_position(connection, advanced)
        self._in_doubt = doubted
        self._position, self._digest = advanced, digest
