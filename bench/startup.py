"""Measure start-up: the processor time of the shortest commands.

The figures are user and system time of the whole process, as the kernel counts them at its end.
Other load on the machine disturbs these less than wall time. ``top`` reads a simulated campaign.
"""

import os
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from statistics import median

from agent.menu.files import load_menu
from autoresearch.layout import JOURNAL_FILE
from bench.figure import Figure
from tests.support.rows import Simulator, write_journal
from trajectory.rows import CampaignRow

ROWS = 100
RUNS = 10
GOAL_HELP_S = 0.4
GOAL_TOP_S = 0.7
COMMAND = Path(sys.executable).with_name("autoresearch")


def run() -> list[Figure]:
    """Return the medians of ``--help`` and of ``top``."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = Simulator(seed=1).rows(ROWS)
        first = next(rows)
        assert isinstance(first, CampaignRow)
        mine = first.model_copy(update={"menu_toml": load_menu("cpu-tiny").toml})
        write_journal(Path(scratch) / JOURNAL_FILE, chain([mine], rows))
        return [
            _figure("--help", ["--help"], GOAL_HELP_S),
            _figure(f"top, {ROWS} rows", ["top", f"--campaign={scratch}"], GOAL_TOP_S),
        ]


def _figure(name: str, arguments: list[str], goal_s: float) -> Figure:
    found = sorted(_process_s(arguments) for _ in range(RUNS))
    return Figure(
        name,
        median(found),
        "s",
        f"<= {goal_s:g} s",
        median(found) <= goal_s,
        f"processor time, median of {RUNS}, from {found[0]:.2f} to {found[-1]:.2f}",
    )


def _process_s(arguments: list[str]) -> float:
    """Return user and system time of one run.

    :raises RuntimeError: if the command fails.
    """
    process = subprocess.Popen([COMMAND, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"autoresearch {' '.join(arguments)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime
