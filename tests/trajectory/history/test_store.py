"""A history in a SQLite file can be lost, damaged or open in another reader."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import HistoryError, JournalError, MachineryError
from tests.support.configs import config
from tests.support.places import ROOT
from tests.support.rows import (
    Simulator,
    baseline_row,
    campaign_row,
    failed,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from tests.support.waiting import wait_until
from trajectory.evidence import Evidence
from trajectory.history.store import History, reindex
from trajectory.journal import Journal, read_rows
from trajectory.lock import CampaignLock
from trajectory.ranking import Unranked, top
from trajectory.rows import IterationRow, Row

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def indexed(journal: Path, where: Path, iterations: int = 60) -> list[Row]:
    rows = write_journal(journal, Simulator(1).rows(iterations))
    History.open(where, journal).close()
    return rows


def dump(where: Path) -> list[str]:
    with sqlite3.connect(where) as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


def assert_equal_to(history: History, rows: list[Row]) -> None:
    kept, expected = history.evidence(), Evidence(rows)
    assert list(kept.configs.items()) == list(expected.configs.items())
    assert kept.tally == expected.tally


def test_it_ranks_and_leaves_out_what_the_evidence_does(journal: Path, where: Path) -> None:
    rows = indexed(journal, where, iterations=300)
    failing = next(row for row in rows if isinstance(row, IterationRow) and len(row.trials) > 1)
    same = next(
        row
        for row in rows
        if isinstance(row, IterationRow) and len(row.trials) == 1 and row is not failing
    )
    lost = failing.trials[-1].model_copy(update={"result": failed()})
    changed = {
        failing.iter: {"trials": (*failing.trials[:-1], lost)},
        same.iter: {"decision": same.decision.model_copy(update={"no_effect": True})},
    }
    rewritten = [
        row.model_copy(update=changed.get(row.iter)) if isinstance(row, IterationRow) else row
        for row in rows
    ]
    write_journal(journal, rewritten)
    reindex(where, journal)
    evidence = Evidence(rewritten)
    with History.open(where, journal) as history:
        assert history.unranked() == Unranked.of(evidence)
        assert history.unranked().failed >= 1
        assert history.unranked().same >= 1
        assert history.top(400) == top(evidence, 400)


def assert_sound(journal: Path, where: Path, rows: list[Row]) -> None:
    with History.open(where, journal) as history:
        assert_equal_to(history, rows)
    grown = dump(where)
    reindex(where, journal)
    assert dump(where) == grown


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def overwrite_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 3 * 8192))


def change(where: Path, statements: str) -> None:
    """Change the database as a process other than the writer."""
    with sqlite3.connect(where) as connection:
        connection.executescript(statements)
    connection.close()


def other_columns(path: Path) -> None:
    change(path, "ALTER TABLE configs_v6 RENAME COLUMN evidence TO proof")


def other_layout(path: Path) -> None:
    path.unlink()
    change(path, "CREATE TABLE campaigns_v0 (id TEXT)")


def nonsense_inside(path: Path) -> None:
    change(path, "UPDATE configs_v6 SET evidence = '{\"no\": 1}' WHERE position = 3")


def nonsense_tally(path: Path) -> None:
    change(path, "UPDATE campaigns_v6 SET tally = '?'")


DAMAGE: list[Callable[[Path], object]] = [
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"this is no database at all\n" * 400),
    lambda path: path.write_bytes(bytes(100_000)),
    cut_short,
    overwrite_middle,
    other_columns,
    other_layout,
    nonsense_inside,
    nonsense_tally,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda d: getattr(d, "__name__", "?"))
def test_a_lost_or_damaged_file_is_built_anew(
    journal: Path, where: Path, damage: Callable[[Path], object]
) -> None:
    rows = indexed(journal, where)
    damage(where)
    assert_sound(journal, where, rows)


@pytest.mark.parametrize("damage", DAMAGE[2:], ids=lambda d: getattr(d, "__name__", "?"))
def test_reindex_mends_whatever_it_finds(
    journal: Path, where: Path, damage: Callable[[Path], object]
) -> None:
    indexed(journal, where)
    sound = dump(where)
    damage(where)
    assert reindex(where, journal).tally.iterations == 60
    if damage is other_layout:  # tables under other names remain
        assert set(sound) < set(dump(where))
    else:
        assert dump(where) == sound


def test_damaged_under_a_running_writer_it_is_built_anew(journal: Path, where: Path) -> None:
    rows = list(Simulator(2).rows(30))
    with Journal(journal) as record, History.open(where, journal) as history:
        for number, row in enumerate(rows):
            if number == 20:
                change(where, "DROP TABLE trials_v6")
            history.add(row, record.append(row))
        assert history.note is not None
    assert_sound(journal, where, rows)


def test_what_is_replaced_is_kept_once_under_another_name(journal: Path, where: Path) -> None:
    write_journal(journal, Simulator(1).rows(5))
    for content in (b"my notes, mistaken for a history", b"and again"):
        where.write_bytes(content)
        History.open(where, journal).close()
        assert where.with_name("history.sqlite.damaged").read_bytes() == content


def test_a_reader_of_a_damaged_file_reads_the_journal_and_changes_nothing(
    journal: Path, where: Path
) -> None:
    rows = indexed(journal, where, 40)
    where.write_bytes(b"no database" * 100)
    with History.open(where, journal, readonly=True) as reader:
        assert reader.position.tally.iterations == 40
        assert reader.evidence().configs == Evidence(rows).configs
        assert reader.note is not None
    assert where.read_bytes() == b"no database" * 100


def test_a_reader_whose_journal_was_cut_behind_the_index_reads_the_journal(
    journal: Path, where: Path
) -> None:
    rows = indexed(journal, where, 40)
    write_journal(journal, iter(rows[:20]))
    with History.open(where, journal, readonly=True) as reader:
        assert reader.evidence().configs == Evidence(rows[:20]).configs


READ_UNPRIVILEGED = """
import os, sys
from pathlib import Path
from trajectory.history.store import History
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
directory = Path(sys.argv[1])
assert not os.access(directory, os.W_OK)
with History.open(directory / "history.sqlite", directory / "trajectory.jsonl", readonly=True) as h:
    print(len(h.top(5)), h.position.tally.iterations, h.note)
"""


@pytest.mark.parametrize("left", ["nothing", "wal"])
def test_a_directory_that_cannot_be_written_can_be_read(tmp_path: Path, left: str) -> None:
    # other users cannot enter pytest's own directories
    home = Path("/tmp") / f"archive-{os.getpid()}-{left}"
    home.mkdir()
    try:
        journal, where = home / "trajectory.jsonl", home / "history.sqlite"
        indexed(journal, where, 20)
        if left == "wal":  # a log without its shared memory, as after a crash and a copy
            with sqlite3.connect(where) as writer:
                writer.execute("CREATE TABLE extra (x)")
                writer.commit()
                for suffix in SUFFIXES[:2]:
                    shutil.copy(f"{where}{suffix}", f"{where}.copy{suffix}")
            writer.close()
            for suffix in SUFFIXES[:2]:
                Path(f"{where}.copy{suffix}").replace(f"{where}{suffix}")
        for path in home.iterdir():
            path.chmod(0o444)
        home.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_UNPRIVILEGED, str(home)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("5 20 ")
        assert ("None" in done.stdout) == (left == "nothing")
    finally:
        home.chmod(0o755)
        shutil.rmtree(home)


def test_readers_in_threads_beside_a_writer(journal: Path, where: Path) -> None:
    rows = list(Simulator(3).rows(150))
    stop = threading.Event()
    seen: list[int] = []
    problems: list[Exception] = []
    with Journal(journal) as record, History.open(where, journal) as history:
        history.add(rows[0], record.append(rows[0]))

        def read() -> None:
            try:
                with History.open(where, journal, readonly=True) as reader:
                    while not stop.is_set():
                        best = len(reader.top(10))
                        assert len(reader.evidence().configs) >= best
                        seen.append(best)
            except Exception as error:  # noqa: BLE001  (told to the test below)
                problems.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for row in rows[1:]:
            history.add(row, record.append(row))
        wait_until(lambda: len(seen) > 2 or problems)
        stop.set()
        for reader in readers:
            reader.join()
    assert problems == []
    assert len(seen) > 2
    assert_sound(journal, where, rows)


def write_on(directory: Path, journal: Path, where: Path) -> None:
    """Resume the campaign there, and write until the process is killed."""
    with (
        CampaignLock(directory),
        Journal(journal) as record,
        History.open(where, journal) as history,
    ):
        done = history.position.lines
        history.evidence()
        for number, row in enumerate(Simulator(4).rows(100_000)):
            if number >= done:
                history.add(row, record.append(row))


def test_killed_at_random_moments_the_history_equals_a_rebuilt_one(tmp_path: Path) -> None:
    rng = random.Random(1)
    journal, where = tmp_path / "trajectory.jsonl", tmp_path / "history.sqlite"
    journal.touch()
    for _ in range(5):
        size = journal.stat().st_size + rng.randint(1, 60_000)
        child = os.fork()
        if not child:
            try:
                write_on(tmp_path, journal, where)
            finally:
                os._exit(1)
        wait_until(lambda size=size: journal.stat().st_size >= size)  # type: ignore[misc]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    Journal(journal).close()
    rows = list(read_rows(journal))
    iterations = [row.iter for row in rows if isinstance(row, IterationRow)]
    assert iterations == list(range(1, len(iterations) + 1))
    assert len(iterations) > 20
    simulated = Simulator(4).rows(len(iterations) + 1)
    assert rows == [next(simulated) for _ in rows]
    assert_sound(journal, where, rows)


@pytest.mark.slow
def test_a_row_costs_the_same_late_as_early(journal: Path, where: Path) -> None:
    rows = list(Simulator(5).rows(3000))
    costs = []
    for length in (100, 3000):
        write_journal(journal, iter(rows[:length]))
        with History.open(where, journal) as history:
            following = next(
                row for row in rows[length:] if isinstance(row, IterationRow) and row.trials
            )
            costs.append(steps_of(history, following))
    assert 0 < costs[1] <= 2 * costs[0]


def steps_of(history: History, row: Row) -> int:
    """Return how many hundred virtual machine instructions indexing this row takes."""
    steps = 0

    def tick() -> None:
        nonlocal steps
        steps += 1

    with history._transaction() as connection:
        raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.set_progress_handler(tick, 100)
    history.add(row)
    raw.set_progress_handler(None, 0)
    return steps


def test_a_history_that_cannot_be_made_is_one_sentence(tmp_path: Path, journal: Path) -> None:
    write_journal(journal, Simulator(6).rows(3))
    with pytest.raises(HistoryError):
        History.open(tmp_path / "nowhere" / "history.sqlite", journal)
    (tmp_path / "folder").mkdir()
    with pytest.raises((HistoryError, MachineryError)) as caught:
        History.open(tmp_path / "folder", journal)
    assert "\n" not in str(caught.value)


def test_an_index_that_lacks_rows_is_not_taken_for_whole(journal: Path, where: Path) -> None:
    rows = indexed(journal, where, 20)
    for lost in ("FROM rows_v6 WHERE line IN (4, 5)", "FROM configs_v6 WHERE position < 3"):
        change(where, f"DELETE {lost}")
        with History.open(where, journal) as history:
            assert history.note is not None
            assert "it lacked rows" in history.note
        assert_sound(journal, where, rows)


REFUSING = "CREATE TRIGGER refusing BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END;"


def test_what_could_not_be_settled_stays_in_doubt(journal: Path, where: Path) -> None:
    rows = list(Simulator(2).rows(20))
    with Journal(journal) as record, History.open(where, journal) as history:
        for row in rows[:-1]:
            history.add(row, record.append(row))
        change(where, REFUSING.format(table="campaigns_v6"))
        with pytest.raises(HistoryError):
            history.add(rows[-1], record.append(rows[-1]))
        change(where, "DELETE FROM rows_v6 WHERE line IN (7, 8)")
        iterations = [row for row in rows if isinstance(row, IterationRow)][::-1]
        assert history.iterations() == iterations, "of one made in memory"
        change(where, "DROP TRIGGER refusing")
        assert history.iterations() == iterations, "once it could be built anew"
    assert_sound(journal, where, rows)


def test_a_row_that_does_not_go_with_the_index_is_held_against_the_journal(
    journal: Path, where: Path
) -> None:
    candidate, unknown = config(lr=2e-3), config(lr=3e-3)
    again = trial(3, config(), 1, ok(4.2), "reference")
    rows = [
        campaign_row(),
        baseline_row(1, 4.27, 0),
        iteration_row(1, candidate, (trial(2, candidate, 0, ok(4.2)), again)),
    ]
    with Journal(journal) as record, History.open(where, journal) as history:
        for row in rows[:2]:
            history.add(row, record.append(row))
        change(where, "UPDATE configs_v6 SET config_hash = 'forgotten'")
        history.add(rows[2], record.append(rows[2]))
        assert_equal_to(history, rows)
        wrong = iteration_row(2, candidate, (trial(4, unknown, 0, ok(4.2), "reference"),))
        with pytest.raises(JournalError, match="t000004"):
            history.add(wrong, record.append(wrong))
