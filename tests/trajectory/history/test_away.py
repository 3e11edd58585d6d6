"""A writer whose database dies, is away for some rows, and comes back with one past or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from autoresearch.errors import HistoryError
from tests.support import postgres
from tests.support.accounts import dump, rebuilt
from tests.support.postgres import Server
from tests.support.rows import Simulator
from trajectory.evidence import Evidence
from trajectory.history import tables
from trajectory.history.store import History
from trajectory.journal import Journal, read_rows
from trajectory.rows import IterationRow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


def as_it_was(_url: str, _journal: Path) -> None:
    """Nobody touched it."""


def empty(url: str, _journal: Path) -> None:
    engine = sa.create_engine(url)
    tables.metadata.drop_all(engine)
    engine.dispose()


def ahead(url: str, journal: Path) -> None:
    """What a write that was done and never acknowledged leaves, too."""
    History.open(url, journal).close()


@pytest.mark.parametrize("comes_back", [as_it_was, empty, ahead])
def test_a_writer_goes_on_without_its_database_and_catches_up_when_it_is_back(
    server: Server, tmp_path: Path, comes_back: Callable[[str, Path], None]
) -> None:
    journal = tmp_path / "trajectory.jsonl"
    rows = Simulator(7).rows(30)
    with Journal(journal) as record, History.open(server.url, journal) as history:

        def add(many: int) -> None:
            for _, row in zip(range(many), rows, strict=False):
                history.add(row, record.append(row))

        add(15)
        server.kill()
        for _ in range(3):
            with pytest.raises(HistoryError, match="check that the database can be reached"):
                add(1)
        written = list(read_rows(journal))
        done = [row.iter for row in written if isinstance(row, IterationRow)]
        assert [row.iter for row in history.iterations()] == done[::-1]
        assert history.iteration_numbers() == set(done)
        known = Evidence()
        for row in written:
            known.add(row)
        assert history.evidence().tally == known.tally

        server.start()
        comes_back(server.url, journal)
        add(1)
        assert dump(server.url) == rebuilt(journal)
        add(3)
        assert dump(server.url) == rebuilt(journal)
    empty(server.url, journal)
