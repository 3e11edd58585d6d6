"""Check that every database's history is the journal's index, equal however it was built."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from autoresearch.errors import CampaignLockedError, HistoryError, JournalError
from tests.support import postgres
from tests.support.accounts import dump
from tests.support.configs import config
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
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.history import tables
from trajectory.history.store import History, reindex
from trajectory.journal import Journal, read_rows
from trajectory.lock import CampaignLock
from trajectory.proposals import Verdict
from trajectory.ranking import Unranked
from trajectory.rows import (
    CampaignRow,
    EventRow,
    FinalistsRow,
    IterationRow,
    Row,
    StressRow,
    dump_row,
)

Address = str | Path


@pytest.fixture(scope="module")
def database_server() -> Iterator[str]:
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    if request.param == "sqlite":
        yield tmp_path / "höhe 100%?#.sqlite"
    else:
        url = request.getfixturevalue("database_server")
        yield url
        engine = sa.create_engine(url)
        tables.metadata.drop_all(engine)
        engine.dispose()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


def write_both(journal: Path, where: Address, rows: Iterator[Row]) -> list[Row]:
    kept = []
    with Journal(journal) as record, History.open(where, journal) as history:
        for row in rows:
            history.add(row, record.append(row))
            kept.append(row)
    return kept


def named_trials(rows: list[Row]) -> set[str]:
    """Return the trial ids in every row's JSON."""
    text = "\n".join(dump_row(row) for row in rows)
    listed = re.findall(r'"trial_ids":\[([^]]*)\]', text)
    return set(re.findall(r'"trial_id":"(t\d+)"', text)) | set(re.findall(r"t\d+", str(listed)))


def assert_equal(one: Evidence, other: Evidence) -> None:
    assert list(one.configs.items()) == list(other.configs.items())
    assert one.tally == other.tally


def test_grown_row_by_row_and_rebuilt_it_is_the_same(where: Address, journal: Path) -> None:
    rows = write_both(journal, where, Simulator(1).rows(40, stress_every=9))
    grown = dump(where)
    done = reindex(where, journal)
    assert dump(where) == grown
    assert (done.lines, done.tally.iterations) == (len(rows), 40)
    assert len(grown[tables.configs.name]) == done.configs > 30
    assert len(grown[tables.rows.name]) == len(rows)


def test_what_it_answers_is_what_the_journal_says(where: Address, journal: Path) -> None:
    rows = write_both(journal, where, Simulator(2).rows(30, stress_every=5))
    iterations = [row for row in rows if isinstance(row, IterationRow)]
    events = [row for row in rows if isinstance(row, EventRow)]
    stress = [row for row in rows if isinstance(row, StressRow)]
    ended = [row for row in rows if isinstance(row, FinalistsRow)]
    for readonly in (False, True):
        with History.open(where, journal, readonly=readonly) as history:
            assert history.note is None
            assert history.campaign() == rows[0]
            assert history.position.tally.iterations == 30
            assert history.iterations() == iterations[::-1]
            assert history.iterations(limit=7) == iterations[:-8:-1]
            assert history.events() == events[::-1]
            assert history.newest(StressRow) == stress[::-1]
            assert history.newest(FinalistsRow, 2) == ended[:-3:-1]
            assert history.trial_ids() == named_trials(rows)
            assert_equal(history.evidence(), Evidence(rows))
            assert history.top(10) == ranking.top(Evidence(rows), 10)
            assert history.top(1000) == ranking.top(Evidence(rows), 1000)
            assert history.unranked() == Unranked.of(Evidence(rows))


def test_long_runs_change_nothing_of_what_the_short_ones_say(
    where: Address, journal: Path, tmp_path: Path
) -> None:
    rows = write_both(journal, where, Simulator(5).rows(30, stress_every=4))
    short = [row for row in rows if not isinstance(row, StressRow | FinalistsRow)]
    assert len(rows) - len(short) > 15
    assert_equal(Evidence(rows), Evidence(short))
    with History.open(where, journal, readonly=True) as history:
        assert_equal(history.evidence(), Evidence(short))
        assert history.top(1000) == ranking.top(Evidence(short), 1000)
        for entry in history.evidence().configs.values():
            assert all(t.role != "stress" for t in history.measurements(entry.config_hash))


def test_measurements_are_a_configs_own_short_runs(where: Address, journal: Path) -> None:
    rows = write_both(journal, where, Simulator(6).rows(20, stress_every=4))
    evidence = Evidence(rows)
    with History.open(where, journal, readonly=True) as history:
        for name, entry in evidence.configs.items():
            found = history.measurements(name)
            assert {t.seed: t.objective for t in found} == entry.scores
            assert all(t.config_hash == name for t in found)


def test_a_file_may_be_named_by_its_url(journal: Path, tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    rows = write_both(journal, f"sqlite:///{file}", Simulator(2).rows(10, stress_every=4))
    assert dump(file) == dump(f"sqlite:///{file}")
    with History.open(file, journal, readonly=True) as history:
        assert_equal(history.evidence(), Evidence(rows))


def test_nothing_yet(where: Address, journal: Path) -> None:
    for _ in range(2):
        with History.open(where, journal) as history:
            assert history.campaign() is None
            assert history.position.tally.iterations == 0
            assert (history.iterations(), history.events(), history.top(10)) == ([], [], [])
            assert history.evidence().configs == {}
            assert history.note is None
        journal.touch()


def test_opened_before_the_first_row_it_takes_that_too(where: Address, journal: Path) -> None:
    with Journal(journal) as record, History.open(where, journal) as history:
        for row in Simulator(4).rows(5):
            record.append(row)
            history.add(row)
        assert history.position.tally.iterations == 5
        assert history.campaign() is not None


@pytest.mark.parametrize("missed", [1, 20])
def test_a_crash_between_journal_and_history_is_made_good(
    where: Address, journal: Path, missed: int
) -> None:
    rows = list(Simulator(3).rows(25))
    write_both(journal, where, iter(rows[:-missed]))
    with Journal(journal) as record:
        for row in rows[-missed:]:
            record.append(row)
    with History.open(where, journal, readonly=True) as history:
        assert history.note is not None
        assert "lacks the last" in history.note
    with History.open(where, journal) as history:
        assert history.note is None
        assert_equal(history.evidence(), Evidence(rows))
    caught_up = dump(where)
    reindex(where, journal)
    assert dump(where) == caught_up


def test_rows_it_was_not_told_of_are_noticed(where: Address, journal: Path) -> None:
    rows = list(Simulator(6).rows(12))
    with Journal(journal) as record, History.open(where, journal) as history:
        for number, row in enumerate(rows):
            end = record.append(row)
            if number % 3 == 2:
                history.add(row, end)
        history.catch_up()
        assert history.catch_up() == 0
        assert_equal(history.evidence(), Evidence(rows))


def test_a_torn_last_line_is_not_indexed(where: Address, journal: Path) -> None:
    rows = write_journal(journal, Simulator(7).rows(10))
    with journal.open("ab") as file:
        file.write(b'{"kind":"iteration","iter":11')
    with History.open(where, journal) as history:
        assert_equal(history.evidence(), Evidence(rows))
    before = dump(where)
    Journal(journal).close()
    with History.open(where, journal) as history:
        assert history.note is None
    assert dump(where) == before


@pytest.mark.parametrize("change", ["shortened", "edited", "replaced", "emptied"])
def test_a_journal_with_another_past_is_indexed_anew(
    where: Address, journal: Path, change: str
) -> None:
    write_both(journal, where, Simulator(8).rows(30))
    text = journal.read_text("utf-8")
    if change == "shortened":
        journal.write_text("".join(text.splitlines(keepends=True)[:20]), "utf-8")
    elif change == "edited":  # by one digit, with the size unchanged, in a line far from the end
        head, mark, tail = text.partition('"val_bpb":4.')
        edited = head + mark + ("3" if tail[0] != "3" else "4") + tail[1:]
        assert len(edited) == len(text) and edited != text
        journal.write_text(edited, "utf-8")
    elif change == "replaced":
        write_journal(journal, Simulator(9).rows(50))
    else:
        journal.write_text("")
    rows = list(read_rows(journal))
    with History.open(where, journal) as history:
        if change in {"shortened", "edited"}:
            assert history.note is not None
            assert "have changed since" in history.note
        assert_equal(history.evidence(), Evidence(rows))
        iterations = sum(isinstance(row, IterationRow) for row in rows)
        assert history.position.tally.iterations == iterations
    with History.open(where, journal) as history:
        assert history.note is None


def test_it_counts_finished_iterations_not_the_highest_id(where: Address, journal: Path) -> None:
    rows: list[Row] = [campaign_row(), baseline_row(1, 4.27, 0), iteration_row(9, None)]
    write_both(journal, where, iter(rows))
    with History.open(where, journal) as history:
        assert history.position.tally.iterations == 1


def test_campaigns_share_a_database(where: Address, journal: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "trajectory.jsonl"
    other.parent.mkdir()
    rows = write_both(journal, where, Simulator(10).rows(12))
    other_rows = write_both(other, where, Simulator(11).rows(15))
    reindex(where, journal)
    for path, expected in ((journal, rows), (other, other_rows)):
        with History.open(where, path) as history:
            assert history.note is None
            assert history.campaign() == expected[0]
            assert_equal(history.evidence(), Evidence(expected))
            assert history.top(5) == ranking.top(Evidence(expected), 5)


def test_foreign_long_and_unspeakable_text(where: Address, journal: Path) -> None:
    reasons = ["größer 大きい \U0001f600", "nul \x00 and % and 'quote'", "x" * (1 << 20), "\ud800"]
    rows: list[Row] = [campaign_row()]
    for number, reason in enumerate(reasons, start=1):
        candidate = config(lr=1e-3 * number)
        result = failed(reason[:2000].replace("\ud800", "?")) if number % 2 else ok(4.2)
        trials = (trial(number, candidate, 2**70, result),)
        rows.append(iteration_row(number, candidate, trials, reason=reason))
    write_both(journal, where, iter(rows))
    grown = dump(where)
    with History.open(where, journal) as history:
        assert history.iterations() == rows[:0:-1]
        assert_equal(history.evidence(), Evidence(rows))
    reindex(where, journal)
    assert dump(where) == grown


def test_a_damaged_journal_is_an_error_that_leaves_what_was_indexed(
    where: Address, journal: Path
) -> None:
    rows = write_both(journal, where, Simulator(12).rows(10))
    with journal.open("a") as file:
        file.write('{"torn\n' + dump_row(iteration_row(11, None)) + "\n")
    with pytest.raises(JournalError, match=f"line {len(rows) + 1} of"):
        History.open(where, journal)
    with History.open(where, journal, readonly=True) as history:
        assert history.position.tally.iterations == 10


def test_a_journal_without_a_campaign_row_is_refused(where: Address, journal: Path) -> None:
    with History.open(where, journal) as history, pytest.raises(JournalError):
        history.add(iteration_row(1, None))


def test_reindex_waits_for_no_running_loop(where: Address, journal: Path) -> None:
    write_both(journal, where, Simulator(13).rows(3))
    with CampaignLock(journal.parent), pytest.raises(CampaignLockedError, match=str(os.getpid())):
        reindex(where, journal)


def test_refused_proposals_are_iterations_without_a_config(where: Address, journal: Path) -> None:
    verdict = Verdict(allowed=False, rail="range", why="lr 3 is above its highest 0.01")
    write_both(journal, where, iter([campaign_row(), iteration_row(1, None, verdict=verdict)]))
    with History.open(where, journal) as history:
        assert history.position.tally.iterations == 1
        assert history.top(10) == []
        assert history.evidence().tally.refusals == {"range": 1}


def test_a_reader_in_the_middle_of_reading_does_not_hold_the_writer_up(
    where: Address, journal: Path
) -> None:
    rows = list(Simulator(14).rows(24))
    write_both(journal, where, iter(rows[:12]))
    with (
        History.open(where, journal, readonly=True) as reader,
        reader._transaction() as connection,
    ):
        before = connection.execute(sa.select(sa.func.count()).select_from(tables.rows)).scalar()
        with Journal(journal) as record, History.open(where, journal) as writer:
            for row in rows[12:]:
                writer.add(row, record.append(row))
            assert_equal(writer.evidence(), Evidence(rows))
        after = connection.execute(sa.select(sa.func.count()).select_from(tables.rows)).scalar()
        assert before == after == 12  # one snapshot
    with History.open(where, journal, readonly=True) as reader:
        assert_equal(reader.evidence(), Evidence(rows))


def test_a_reader_cannot_write(where: Address, journal: Path) -> None:
    rows = write_both(journal, where, Simulator(15).rows(5))
    before = dump(where)
    with (
        History.open(where, journal, readonly=True) as reader,
        pytest.raises(HistoryError),
    ):
        reader.add(rows[0])
    assert dump(where) == before


def test_a_reader_of_a_campaign_never_indexed_reads_the_journal(
    where: Address, journal: Path
) -> None:
    rows = write_journal(journal, Simulator(16).rows(15))
    with History.open(where, journal, readonly=True) as reader:
        assert reader.note is not None
        assert "built in memory" in reader.note
        assert reader.top(10) == ranking.top(Evidence(rows), 10)
    assert isinstance(rows[0], CampaignRow)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://lab:hunter2@127.0.0.1:1/none",
        "postgresql+psycopg://lab@127.0.0.1:1/none?password=hunter2",
        "postgresql+psycopg://lab:/hunter2@host/none",
        "postgresql+psycopg://lab:pass@host:hunter2/none",
        "cassandra://lab:hunter2@host/none",
        "://",
    ],
)
def test_an_unreachable_database_is_one_sentence_without_the_password(
    address: str, journal: Path
) -> None:
    for readonly in (False, True):
        with pytest.raises(HistoryError) as caught:
            History.open(address, journal, readonly=readonly)
        assert "hunter2" not in str(caught.value)
        assert "\n" not in str(caught.value)
