"""What a long campaign costs: a row, a resume and a ``top`` after 100 rows and after 100,000.

The journals are simulated, their rows as a real campaign writes them (about 2 KiB each). A row's
time is append with fsync plus indexing. Resuming is what the loop does before its first proposal:
opening the journal and the history, which checks the SHA-256 of all that was indexed, and restoring
the evidence. Resume and ``top`` are timed in a fresh process, without the interpreter's own start.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.figure import Figure
from tests.support.rows import Simulator
from trajectory.history.store import History
from trajectory.journal import Journal
from trajectory.rows import Row, dump_row

SCALES = (100, 100_000)
APPENDED = 200
FLAT = 2.0
"""Flat: a row costs at most this many times as much in the long campaign, noise included."""
GOAL_RESUME_S = 2.0
GOAL_TOP_MS = 200.0

_RESUME = """
import sys, time
from pathlib import Path
from trajectory.history.store import History
from trajectory.journal import Journal
journal, where = Path(sys.argv[1]), Path(sys.argv[2])
began = time.perf_counter()
with Journal(journal), History.open(where, journal) as history:
    history.evidence()
    print(time.perf_counter() - began)
"""
_TOP = """
import sys, time
from pathlib import Path
from trajectory.history.store import History
journal, where = Path(sys.argv[1]), Path(sys.argv[2])
began = time.perf_counter()
with History.open(where, journal, readonly=True) as history:
    assert len(history.top(10)) == 10
    print(time.perf_counter() - began)
"""


def run() -> list[Figure]:
    """Per row, resume and top, at both scales."""
    figures: list[Figure] = []
    row_ms: dict[int, float] = {}
    for scale in SCALES:
        with tempfile.TemporaryDirectory() as scratch:
            journal, where = Path(scratch) / "trajectory.jsonl", Path(scratch) / "history.sqlite"
            began = time.perf_counter()
            following = _prepare(journal, where, scale)
            prepared_s = time.perf_counter() - began
            row_ms[scale] = _row_ms(journal, where, following)
            resume_s = min(_fresh(_RESUME, journal, where) for _ in range(3))
            top_ms = 1e3 * min(_fresh(_TOP, journal, where) for _ in range(3))
            size_mib = journal.stat().st_size / 2**20
        rows = f"{scale:,} rows"
        flat = row_ms[scale] <= FLAT * row_ms[SCALES[0]]
        figures += [
            Figure(
                f"append and index a row, {rows}",
                row_ms[scale],
                "ms",
                f"flat (at most {FLAT:g}×)",
                flat,
                f"median of {APPENDED}, fsync included",
            ),
            Figure(
                f"resume, {rows}",
                resume_s,
                "s",
                f"<= {GOAL_RESUME_S:g} s",
                resume_s <= GOAL_RESUME_S,
                f"best of 3 fresh processes, a journal of {size_mib:.1f} MiB",
            ),
            Figure(
                f"top 10, {rows}",
                top_ms,
                "ms",
                f"<= {GOAL_TOP_MS:g} ms",
                top_ms <= GOAL_TOP_MS,
                "best of 3 fresh processes, opening included",
            ),
            Figure(f"build the history, {rows}", prepared_s, "s", note="simulating them included"),
        ]
    return figures


def _prepare(journal: Path, where: Path, scale: int) -> list[Row]:
    """A journal of that many rows, indexed; the rows that would follow."""
    following: list[Row] = []
    with journal.open("w", encoding="utf-8") as file:
        for number, row in enumerate(Simulator(seed=scale).rows(scale + APPENDED)):
            if number < scale:
                file.write(dump_row(row) + "\n")
            elif len(following) < APPENDED:
                following.append(row)
    History.open(where, journal).close()
    return following


def _row_ms(journal: Path, where: Path, following: list[Row]) -> float:
    times_ms = []
    with Journal(journal) as record, History.open(where, journal) as history:
        for row in following:
            began = time.perf_counter()
            history.add(row, record.append(row))
            times_ms.append(1e3 * (time.perf_counter() - began))
    return median(times_ms)


def _fresh(code: str, journal: Path, where: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code, str(journal), str(where)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return float(json.loads(done.stdout))
