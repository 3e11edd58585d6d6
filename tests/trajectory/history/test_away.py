"""The index's database fails, misses rows and returns with one history or another."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from autoresearch.errors import HistoryError
from tests.support import postgres
from tests.support.accounts import dump, rebuilt
from tests.support.postgres import Server
from tests.support.rows import Simulator
from trajectory.evidence import Evidence
from trajectory.history import servers, tables
from trajectory.history.store import History, reindex
from trajectory.journal import Journal, read_rows
from trajectory.rows import IterationRow, Row


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


def as_it_was(_url: str, _journal: Path) -> None:
    """Leave the database unchanged."""


def empty(url: str, _journal: Path) -> None:
    engine = sa.create_engine(url)
    tables.metadata.drop_all(engine)
    engine.dispose()


def emptied(url: str, journal: Path) -> None:
    """Recreate the tables, as another campaign does when it resumes."""
    empty(url, journal)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        tables.create(connection)
    engine.dispose()


def older(url: str, journal: Path) -> None:
    """Restore a copy that is some rows older."""
    empty(url, journal)
    copy = journal.with_name("older.jsonl")
    copy.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:9]))
    History.open(url, copy).close()


def ahead(url: str, journal: Path) -> None:
    """Index the whole journal, as after a write that was completed but never acknowledged."""
    History.open(url, journal).close()


class Writer:
    """Writer of a campaign's rows to the journal and the index."""

    def __init__(self, journal: Path, record: Journal, history: History) -> None:
        self.journal = journal
        self.history = history
        self._record = record
        self._rows = Simulator(7).rows(30)

    def add(self, many: int) -> None:
        for _, row in zip(range(many), self._rows, strict=False):
            self.history.add(row, self._record.append(row))

    def written(self) -> list[Row]:
        return list(read_rows(self.journal))

    def iterations(self) -> list[Row]:
        """Return the iteration rows, newest first."""
        return [row for row in self.written() if isinstance(row, IterationRow)][::-1]


@pytest.fixture
def writer(server: Server, tmp_path: Path) -> Iterator[Writer]:
    journal = tmp_path / "trajectory.jsonl"
    with Journal(journal) as record, History.open(server.url, journal) as history:
        yield Writer(journal, record, history)
    empty(server.url, journal)


@pytest.mark.parametrize("comes_back", [as_it_was, empty, ahead])
def test_a_writer_goes_on_without_its_database_and_catches_up_when_it_is_back(
    server: Server, writer: Writer, comes_back: Callable[[str, Path], None]
) -> None:
    writer.add(15)
    server.kill()
    for _ in range(3):
        with pytest.raises(HistoryError):
            writer.add(1)
    assert writer.history.iterations() == writer.iterations()
    assert writer.history.evidence().tally == Evidence(writer.written()).tally

    server.start()
    comes_back(server.url, writer.journal)
    writer.add(1)
    assert dump(server.url) == rebuilt(writer.journal)
    writer.add(3)
    assert dump(server.url) == rebuilt(writer.journal)


LESS = [empty, emptied, older]


@pytest.mark.parametrize("comes_back", LESS)
def test_a_server_back_with_less_between_two_rows_is_given_all_by_the_next(
    server: Server, writer: Writer, comes_back: Callable[[str, Path], None]
) -> None:
    writer.add(15)
    server.kill()
    server.start()
    comes_back(server.url, writer.journal)
    for _ in range(2):
        writer.add(1)
        assert dump(server.url) == rebuilt(writer.journal)


@pytest.mark.parametrize("comes_back", LESS)
def test_a_question_to_a_server_back_with_less_is_answered_in_full(
    server: Server, writer: Writer, comes_back: Callable[[str, Path], None]
) -> None:
    writer.add(15)
    comes_back(server.url, writer.journal)
    assert writer.history.iterations() == writer.iterations()
    assert dump(server.url) == rebuilt(writer.journal), "and it has all again"
    comes_back(server.url, writer.journal)
    assert writer.history.evidence().tally == Evidence(writer.written()).tally


NONSENSE = [tables.campaigns.c.tally, tables.configs.c.evidence]


@pytest.mark.parametrize("column", NONSENSE, ids=lambda column: str(column.name))
def test_tables_that_hold_nonsense_are_filled_anew(
    server: Server, writer: Writer, column: sa.Column[str]
) -> None:
    writer.add(15)
    known = Evidence(writer.written()).tally
    mends: list[Callable[[], object]] = [
        writer.history.evidence,
        lambda: reindex(server.url, writer.journal),
    ]
    engine = sa.create_engine(server.url)
    for mend in mends:
        with engine.begin() as connection:
            connection.execute(column.table.update().values({column: "?"}))
        mend()
        assert dump(server.url) == rebuilt(writer.journal)
    engine.dispose()
    assert writer.history.evidence().tally == known


@pytest.mark.slow
def test_a_server_that_stands_still_counts_as_away(
    server: Server, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SILENCE_S", 1.0)
    monkeypatch.setitem(servers._OPTIONS, "connect_timeout", 2)
    writer.add(15)
    with server.standing_still():
        with pytest.raises(HistoryError):
            writer.add(1)
        assert writer.history.iterations() == writer.iterations()
        with ThreadPoolExecutor() as pool:  # each waits until it gives up
            opened = [
                pool.submit(History.open, server.url, writer.journal, readonly=readonly)
                for readonly in (True, False)
            ]
        for each in opened:
            error = each.exception()
            assert isinstance(error, HistoryError)
            assert "\n" not in str(error)
    writer.add(1)
    assert dump(server.url) == rebuilt(writer.journal)


def test_a_server_that_stops_in_the_middle_of_an_answer_is_not_waited_for(
    server: Server, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SILENCE_S", 1.0)
    with (
        pytest.raises(HistoryError),
        writer.history._transaction() as connection,
        server.standing_still(),
    ):
        connection.execute(sa.select(1))
    writer.add(1)
