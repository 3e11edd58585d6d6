"""Measure how reading a campaign grows with its rows: processor time and memory of each reader."""

import os
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

from agent.menu.files import load_menu
from autoresearch.layout import JOURNAL_FILE
from bench.figure import Figure
from tests.support.rows import Simulator, write_journal
from trajectory.rows import CampaignRow

SIZES = (100, 1_000, 10_000)
RESUME = """
import sys
from pathlib import Path
from trajectory.history.store import History
from trajectory.reading import Results
place = Path(sys.argv[1])
results = Results(place / "trajectory.jsonl")
with History(place / "history.sqlite", place / "trajectory.jsonl") as history:
    history.catch_up()
"""
PAGE = """
import sys
from pathlib import Path
from trajectory.live.board import Watched
Watched("campaign", Path(sys.argv[1])).poll()
"""
AUTORESEARCH = str(Path(sys.executable).with_name("autoresearch"))
READERS = {
    "first resume, without an index": ([sys.executable, "-c", RESUME], 1.0, 500),
    "resume": ([sys.executable, "-c", RESUME], 1.0, 50),
    "top": ([AUTORESEARCH, "top", "--campaign"], 1.0, 50),
    "page": ([sys.executable, "-c", PAGE], 1.0, 150),
    "status": ([AUTORESEARCH, "status"], 1.0, 150),
    "report": ([AUTORESEARCH, "report", "--campaign"], 4.0, 300),
}
"""Each one's command, and its bound: seconds, and microseconds for each row."""
MOST_REPORT_MB = 15


def run() -> list[Figure]:
    """Return the figures of every reader at every size, and the sizes of the reports."""
    figures = []
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as name:
            # In a process of its own: a child's peak memory counts from its parent's at the fork.
            writer = f"from bench.growth import write; write({name!r}, {rows})"
            subprocess.run([sys.executable, "-c", writer], check=True)
            for reader, (command, fixed_s, row_us) in READERS.items():
                busy_s, peak_mib = _spent([*command, name], max_code=4 * (reader == "status"))
                bound_s = fixed_s + rows * row_us / 1e6
                figures.append(
                    Figure(
                        f"{reader}, {rows:,} rows", busy_s, "s", f"<= {bound_s:.3g} s",
                        busy_s <= bound_s, f"processor time; {peak_mib:.0f} MiB",
                    )
                )  # fmt: skip
            megabytes = (Path(name) / "report" / "report.html").stat().st_size / 1e6
            goal = f"< {MOST_REPORT_MB} MB"
            met = megabytes < MOST_REPORT_MB
            figures.append(Figure(f"report.html, {rows:,} rows", megabytes, "MB", goal, met))
    return figures


def write(place: str, rows: int) -> None:
    """Write a simulated campaign of the tiny menu."""
    simulated = Simulator(seed=1).rows(rows)
    first = next(simulated)
    assert isinstance(first, CampaignRow)
    mine = first.model_copy(update={"menu_toml": load_menu("cpu-tiny").toml})
    write_journal(Path(place) / JOURNAL_FILE, chain([mine], simulated))


def _spent(command: list[str], max_code: int) -> tuple[float, float]:
    """Return processor seconds and peak MiB of a command.

    :raises RuntimeError: if it fails.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not 0 <= process.returncode <= max_code:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
