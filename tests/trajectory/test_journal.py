"""The journal keeps its rows when the process, the power or the disk fails."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import JournalError, MachineryError
from tests.support.places import ROOT
from tests.support.rows import Simulator, campaign_row, iteration_row
from trajectory.journal import Journal, read_records, read_rows
from trajectory.rows import SCHEMA, CampaignRow, EventRow, IterationRow, Row, dump_row

ROWS = list(Simulator(2).rows(8))
RECORD = (dump_row(ROWS[-1]) + "\n").encode()
BEFORE = "".join(dump_row(row) + "\n" for row in ROWS[:-1]).encode()

APPENDER = """
import sys
from pathlib import Path
from tests.support.rows import campaign_row, iteration_row
from trajectory.journal import Journal, read_rows
path = Path(sys.argv[1])
done = sum(1 for row in read_rows(path))
with Journal(path) as journal:
    if not done:
        journal.append(campaign_row())
        done = 1
    for iteration in range(done, 100_000):
        journal.append(iteration_row(iteration, None, reason="x" * 20_000))
        print(iteration, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


def note(why: str = "lunch") -> EventRow:
    return EventRow(at="2026-01-05T22:00:00.000+00:00", event="note", why=why)


def test_rows_come_back_in_order(path: Path) -> None:
    assert list(read_rows(path)) == [], "there is no file"
    with Journal(path) as journal:
        assert path.read_bytes() == b""
        assert list(read_rows(path)) == []
        assert journal.append(ROWS[0]) == path.stat().st_size
    with Journal(path) as journal:
        for row in ROWS[1:]:
            assert journal.append(row) == path.stat().st_size == journal.end
        assert list(journal.rows()) == ROWS
        assert journal.repaired is None
    records = list(read_records(path))
    assert [record.row for record in records] == ROWS
    assert b"".join(record.raw for record in records) == path.read_bytes() == BEFORE + RECORD
    assert [records[0].end, records[-1].end] == [len(records[0].raw), path.stat().st_size]


@settings(max_examples=20)
@given(st.integers(1, len(RECORD) - 2))
def test_a_torn_last_line_is_passed_over_then_cut_away_and_kept(cut: int) -> None:
    check_torn(RECORD[:cut])


@pytest.mark.parametrize("cut", [1, 2, 15, len(RECORD) - 2])
@pytest.mark.parametrize("rest", [b"\0" * 40, b"\0" * 40 + b"\n"], ids=["zeros", "zeros-newline"])
def test_a_last_line_of_zeros_is_torn_too(cut: int, rest: bytes) -> None:
    check_torn(RECORD[:cut] + rest)


def check_torn(torn: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trajectory.jsonl"
        path.write_bytes(BEFORE + torn)
        assert list(read_rows(path)) == ROWS[:-1]
        with Journal(path) as journal:
            assert path.read_bytes() == BEFORE
            assert journal.repaired is not None
            journal.append(ROWS[-1])
        assert list(read_rows(path)) == ROWS
        assert (Path(scratch) / "trajectory.jsonl.torn-1").read_bytes() == torn


def test_more_than_one_torn_line_is_no_power_cut(path: Path) -> None:
    torn = BEFORE + b"what an editor wrote\nand wrote\n"
    path.write_bytes(torn)
    with pytest.raises(JournalError):
        Journal(path)
    assert path.read_bytes() == torn


def test_a_whole_last_line_that_only_lacks_its_newline_is_kept(path: Path) -> None:
    path.write_bytes(BEFORE + RECORD[:-1])
    assert list(read_rows(path)) == ROWS
    with Journal(path) as journal:
        assert journal.repaired is None
        journal.append(note())
    assert list(read_rows(path)) == [*ROWS, note()]


def test_pieces_cut_away_never_overwrite_each_other(path: Path) -> None:
    for piece in (b'{"a', b'{"b'):
        with path.open("ab") as file:
            file.write(piece)
        assert list(read_rows(path)) == []
        Journal(path).close()
    kept = sorted(path.parent.glob("*.torn-*"))
    assert [file.read_bytes() for file in kept] == [b'{"a', b'{"b']
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: b"",
        lambda line: b"\0" * len(line),
        lambda line: line.replace(b'"seed"', b'"sede"'),
        lambda line: line + line,
        lambda line: b"[1, 2]",
        lambda line: b"\xff\xfe" + line,
    ],
    ids=["torn", "blank", "zeros", "renamed", "twice", "list", "bytes"],
)
def test_damage_in_the_middle_names_the_file_and_the_line(path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    lines = (BEFORE + RECORD).splitlines()
    lines[3] = damage(lines[3])
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(JournalError) as caught:
        list(read_rows(path))
    assert str(caught.value).startswith(f"line 4 of {path} is not a row (")
    assert "\n" not in str(caught.value)
    assert "(got b" not in str(caught.value), "the value is told as text"
    assert "line 2" not in str(caught.value), "the only line told is the file's"
    with Journal(path):
        pass
    assert path.read_bytes() == b"\n".join(lines) + b"\n"


NEWER = json.dumps(json.loads(dump_row(campaign_row())) | {"schema": 7, "galaxy": "new"})
FIRST = dump_row(ROWS[0])
REFUSED = [
    ([FIRST, '{"kind":"iteration"}'], "line 2 of"),
    ([NEWER], rf"format 7 .* reads up to {SCHEMA}; install"),
    ([FIRST, '{"kind":"dream","at":"2027-01-01"}'], "newer one"),
    ([dump_row(ROWS[1])], "line 1"),
    ([FIRST, dump_row(ROWS[1]), FIRST], "line 3"),
]
"""Journals whose last line is JSON, and so not torn, and what their refusal says."""


@pytest.mark.parametrize(("lines", "said"), REFUSED)
def test_a_whole_foreign_line_is_refused_and_kept(path: Path, lines: list[str], said: str) -> None:
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(JournalError, match=said):
        list(read_rows(path))
    Journal(path).close()
    assert path.read_text() == "\n".join(lines) + "\n"


def test_long_and_foreign_reasons_survive(path: Path) -> None:
    reasons = ["größer – 大きい – \U0001f600", "line\nbreak\u2028and\x00nul", "x" * (1 << 20)]
    rows: list[Row] = [
        campaign_row(),
        *(iteration_row(i, None, reason=reason) for i, reason in enumerate(reasons, start=1)),
    ]
    with Journal(path) as journal:
        for row in rows:
            journal.append(row)
    assert list(read_rows(path)) == rows
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)
    with Journal(path) as journal:
        journal.append(rows[-1])
    assert list(read_rows(path)) == rows


def test_writing_beside_another_writer_is_noticed(path: Path) -> None:
    with Journal(path) as one, Journal(path) as other:
        one.append(campaign_row())
        with pytest.raises(JournalError):
            other.append(campaign_row())
    assert list(read_rows(path)) == [campaign_row()]


def test_a_reader_beside_the_writer_sees_whole_rows_only(path: Path) -> None:
    row = iteration_row(1, None, reason="y" * 300_000)
    stop = threading.Event()
    with Journal(path) as journal:
        journal.append(campaign_row())

        def write() -> None:
            for _ in range(100):
                if stop.is_set():
                    break
                journal.append(row)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = 0
            while seen < 60:
                rows = list(read_rows(path))
                assert rows[0] == campaign_row()
                assert all(later == row for later in rows[1:])
                seen = len(rows)
        finally:
            stop.set()
            writer.join()
    assert seen >= 60


def test_killed_at_random_moments_it_loses_nothing_it_reported(path: Path) -> None:
    rng = random.Random(0)
    reported = 0
    for _ in range(6):
        command = [sys.executable, "-c", APPENDER, str(path)]
        appender = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert appender.stdout is not None
        assert appender.stdout.readline()
        read = [appender.stdout.readline() for _ in range(rng.randint(2, 60))]
        os.kill(appender.pid, signal.SIGKILL)
        rest, _ = appender.communicate()
        reported = max(map(int, [*read, *rest.split()]))
        Journal(path).close()
        rows = list(read_rows(path))
        assert isinstance(rows[0], CampaignRow)
        iterations = [row.iter for row in rows if isinstance(row, IterationRow)]
        assert iterations == list(range(1, len(rows)))
        assert len(iterations) >= reported
    assert reported > 6


FILL_AND_RESUME = """
import resource, sys
from pathlib import Path
from tests.support.rows import campaign_row, iteration_row
from autoresearch.errors import MachineryError
from trajectory.journal import Journal, read_rows
path, how = Path(sys.argv[1]), sys.argv[2]
ballast = path.with_name("ballast")
rows = [campaign_row()]
with Journal(path) as journal:
    journal.append(rows[0])
    ballast.write_bytes(bytes(1 << 16))
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    try:
        for iteration in range(1, 1000):
            row = iteration_row(iteration, None, reason="z" * 7000)
            journal.append(row)
            rows.append(row)
        sys.exit("it never filled up")
    except MachineryError as error:
        print(error)
    assert path.stat().st_size == journal.end
    assert list(read_rows(path)) == rows, "not as it was before"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    ballast.unlink()
    journal.append(row)
    assert list(read_rows(path)) == [*rows, row], "not appendable"
"""


@pytest.mark.parametrize("how", ["limit", "disk"])
def test_a_full_disk_leaves_the_journal_whole_and_appendable(path: Path, how: str) -> None:
    command = [sys.executable, "-c", FILL_AND_RESUME, str(path), how]
    if how == "disk":
        mount = f"mount -t tmpfs -o size=256k none {shlex.quote(str(path.parent))}"
        unshare = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
        try:
            subprocess.run([*unshare, mount], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("this machine lets a test mount no file system of its own")
        command = [*unshare, f'{mount} && exec "$@"', "sh", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_directory_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MachineryError):
        Journal(tmp_path / "nowhere" / "trajectory.jsonl")
    with pytest.raises(MachineryError):
        list(read_rows(tmp_path))
