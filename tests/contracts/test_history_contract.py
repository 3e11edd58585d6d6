import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from autoresearch.errors import CampaignLockedError, HistoryError, JournalError, MachineryError
from tests.support import postgres
from tests.support.accounts import dump, rebuilt
from tests.support.configs import config
from tests.support.postgres import Server
from tests.support.rows import (
    Simulator,
    campaign_row,
    failed,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from tests.support.waiting import wait_until
from trajectory.history import tables
from trajectory.history.store import History, reindex
from trajectory.journal import Journal
from trajectory.lock import CampaignLock
from trajectory.rows import Row, dump_row

Address = str | Path


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    if request.param == "sqlite":
        yield tmp_path / "höhe 100%?#.sqlite"
    else:
        url = request.getfixturevalue("server").url
        yield url
        drop(url)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


def drop(url: str) -> None:
    engine = sa.create_engine(url)
    tables.metadata.drop_all(engine)
    engine.dispose()


def index(journal: Path, where: Address) -> str | None:
    """Bring an index up to date with its journal, and return its note."""
    with History(where, journal) as history:
        history.catch_up()
        return history.note


def check_whole(journal: Path, where: Address) -> None:
    assert dump(where) == rebuilt(journal)


class Writer:
    """Write a campaign's rows to the journal and the index, as the loop does."""

    def __init__(self, journal: Path, history: History) -> None:
        self._record = Journal(journal)
        self._history = history
        self._rows = Simulator(7).rows(60)

    def add(self, many: int) -> None:
        for _, row in zip(range(many), self._rows, strict=False):
            self._record.append(row)
            self._history.catch_up()


def test_grown_row_by_row_and_rebuilt_it_is_the_same(where: Address, journal: Path) -> None:
    with History(where, journal) as history:
        Writer(journal, history).add(1000)
    grown = dump(where)
    reindex(where, journal)
    assert dump(where) == grown == rebuilt(journal)
    assert [row[3] for row in grown] == journal.read_text().splitlines()


@pytest.mark.parametrize("missed", [0, 1, 20])
def test_rows_missed_by_a_kill_are_added(where: Address, journal: Path, missed: int) -> None:
    rows = list(Simulator(3).rows(25))
    write_journal(journal, iter(rows[:-missed] if missed else ()))
    index(journal, where)
    assert len(dump(where)) == len(rows[:-missed] if missed else ())
    write_journal(journal, iter(rows))
    with journal.open("ab") as file:
        file.write(b'{"kind":"iteration","iter":11')  # torn by the kill
    assert index(journal, where) is None
    Journal(journal).close()
    check_whole(journal, where)


def shortened(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:20])


def edited(text: str) -> str:
    """Change one digit far from the end, and leave the size."""
    head, mark, tail = text.partition('"val_bpb":4.')
    return head + mark + ("3" if tail[0] != "3" else "4") + tail[1:]


@pytest.mark.parametrize("change", [shortened, edited])
def test_a_journal_with_another_past_is_indexed_anew(
    where: Address, journal: Path, change: Callable[[str], str]
) -> None:
    write_journal(journal, Simulator(8).rows(30))
    index(journal, where)
    journal.write_text(change(journal.read_text("utf-8")), "utf-8")
    index(journal, where)
    check_whole(journal, where)


def test_campaigns_share_a_database(where: Address, journal: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "trajectory.jsonl"
    other.parent.mkdir()
    for path, seed in ((journal, 10), (other, 11)):
        write_journal(path, Simulator(seed).rows(12))
        index(path, where)
    reindex(where, journal)
    assert dump(where) == sorted([*rebuilt(journal), *rebuilt(other)])


def test_foreign_long_and_unspeakable_text(where: Address, journal: Path) -> None:
    reasons = ["größer 大きい \U0001f600", "nul \x00 and % and 'quote'", "x" * (1 << 20), "\ud800"]
    rows: list[Row] = [campaign_row()]
    for number, reason in enumerate(reasons, start=1):
        candidate = config(lr=1e-3 * number)
        result = failed(reason[:2000].replace("\ud800", "?")) if number % 2 else ok(4.2)
        trials = (trial(number, candidate, 2**70, result),)
        rows.append(iteration_row(number, candidate, trials, reason=reason))
    write_journal(journal, iter(rows))
    index(journal, where)
    check_whole(journal, where)


def test_reindex_refuses_a_running_or_damaged_campaign(where: Address, journal: Path) -> None:
    write_journal(journal, Simulator(13).rows(10))
    index(journal, where)
    before = dump(where)
    with CampaignLock(journal.parent), pytest.raises(CampaignLockedError):
        reindex(where, journal)
    with journal.open("a") as file:
        file.write('{"torn\n' + dump_row(iteration_row(11, None)) + "\n")
    with pytest.raises(JournalError):
        reindex(where, journal)
    assert dump(where) == before


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://lab:hunter2@127.0.0.1:1/none",
        "postgresql+psycopg://lab@127.0.0.1:1/none?password=hunter2",
        "postgresql+psycopg://lab:/hunter2@host/none",
        "postgresql+psycopg://lab:pass@host:hunter2/none",
        "cassandra://lab:hunter2@host/none",
        "://",
        *(Path("nowhere/history.sqlite"), Path("folder")),
    ],
    ids=str,
)
def test_a_place_that_cannot_be_used_hides_the_password(address: Address, journal: Path) -> None:
    write_journal(journal, Simulator(6).rows(3))
    (journal.parent / "folder").mkdir()
    where = journal.parent / address if isinstance(address, Path) else address
    with pytest.raises((HistoryError, MachineryError)) as caught:
        index(journal, where)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


# --- a SQLite file ------------------------------------------------------------------------------


def other_columns(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"ALTER TABLE {tables.rows.name} RENAME COLUMN json TO said")
    connection.close()


DAMAGE: list[Callable[[Path], object]] = [
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"my notes, mistaken for a history" * 400),
    lambda path: os.truncate(path, path.stat().st_size // 3),
    other_columns,
]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("build", [index, lambda journal, where: reindex(where, journal)])
def test_a_lost_or_damaged_file_is_built_anew(
    journal: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
    build: Callable[[Path, Path], object],
) -> None:
    where = tmp_path / "history.sqlite"
    write_journal(journal, Simulator(1).rows(60))
    index(journal, where)
    damage(where)
    before = where.read_bytes() if where.exists() else b""
    write_journal(journal, Simulator(1).rows(61))  # damage may show only when a row is added
    build(journal, where)
    check_whole(journal, where)
    kept = where.with_name("history.sqlite.damaged")
    assert not kept.exists() or kept.read_bytes() == before


def test_killed_at_any_moment_it_equals_a_rebuilt_one(tmp_path: Path, journal: Path) -> None:
    where = tmp_path / "history.sqlite"
    for kill in range(4):
        size = 7_000 * (kill + 1) ** 2
        child = os.fork()
        if not child:
            try:
                done = sum(1 for _ in journal.open("rb")) if journal.exists() else 0
                with Journal(journal) as record, History(where, journal) as history:
                    for number, row in enumerate(Simulator(4).rows(100_000)):
                        if number >= done:
                            record.append(row)
                            history.catch_up()
            finally:
                os._exit(1)
        wait_until(
            lambda size=size: journal.exists() and journal.stat().st_size >= size  # type: ignore[misc]
        )
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        Journal(journal).close()
    index(journal, where)
    check_whole(journal, where)


# --- a server that fails ------------------------------------------------------------------------


@pytest.fixture
def writer(server: Server, journal: Path) -> Iterator[Writer]:
    with History(server.url, journal) as history:
        yield Writer(journal, history)
    drop(server.url)


def as_it_was(_url: str, _journal: Path) -> None:
    """Leave the database unchanged."""


def empty(url: str, _journal: Path) -> None:
    drop(url)


def older(url: str, journal: Path) -> None:
    """Restore a copy that is some rows older."""
    drop(url)
    copy = journal.with_name("older.jsonl")
    copy.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:9]))
    index(copy, url)


def ahead(url: str, journal: Path) -> None:
    """Index the whole journal, as after a write that was completed but never acknowledged."""
    index(journal, url)


@pytest.mark.parametrize("comes_back", [as_it_was, empty, older, ahead])
def test_a_server_that_was_away_gets_what_it_lacks(
    server: Server, writer: Writer, journal: Path, comes_back: Callable[[str, Path], None]
) -> None:
    writer.add(15)
    server.kill()
    for _ in range(3):
        with pytest.raises(HistoryError):
            writer.add(1)
    server.start()
    comes_back(server.url, journal)
    for _ in range(2):
        writer.add(1)
        check_whole(journal, server.url)
