"""A campaign is read from its journal if that is short, else from the index, with the same
result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch.errors import JournalError
from tests.support.places import ROOT
from tests.support.rows import Simulator, write_journal
from trajectory.history.store import History
from trajectory.reading import SHORT_BYTES, JournalReading, read_campaign
from trajectory.rows import CampaignRow, FinalistsRow, StressRow

DEMO = ROOT / "docs" / "demo" / "trajectory.jsonl"


def unasked() -> Path:
    raise AssertionError("the history is nobody's business here")


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_the_journal_says_what_its_index_says(tmp_path: Path, rows: int) -> None:
    journal, where = tmp_path / "trajectory.jsonl", tmp_path / "history.sqlite"
    write_journal(journal, Simulator(3).rows(rows))
    with History.open(where, journal) as history, read_campaign(journal, unasked) as reading:
        assert isinstance(reading, JournalReading)
        assert reading.note is None
        assert reading.tally == history.tally
        assert reading.campaign() == history.campaign()
        for kind in (StressRow, FinalistsRow, CampaignRow):
            assert reading.newest(kind) == history.newest(kind)
        assert reading.newest(StressRow, 1) == history.newest(StressRow, 1)
        for k in (1, 10, sys.maxsize):
            assert reading.top(k) == history.top(k)


def test_a_short_journal_loads_no_database() -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trajectory.reading import read_campaign\n"
        f"assert read_campaign(Path({str(DEMO)!r}), Path.cwd).top(1)\n"
        "sys.exit('sqlalchemy' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_a_long_journal_is_asked_through_its_index(tmp_path: Path) -> None:
    journal, where = tmp_path / "trajectory.jsonl", tmp_path / "history.sqlite"
    write_journal(journal, Simulator(3).rows(20))
    with History.open(where, journal):
        pass
    with journal.open("a") as file:
        file.write(" " * SHORT_BYTES)
    with read_campaign(journal, lambda: where) as reading:
        assert isinstance(reading, History)
        assert reading.campaign() is not None


def test_a_line_in_the_making_is_left_out_and_a_damaged_one_named(tmp_path: Path) -> None:
    journal = tmp_path / "trajectory.jsonl"
    write_journal(journal, Simulator(3).rows(20))
    before = JournalReading(journal).top(10)
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines()[-1][:50])
    assert JournalReading(journal).top(10) == before
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], b"{}\n", *lines[6:]]))
    with pytest.raises(JournalError, match="line 6"):
        JournalReading(journal)
