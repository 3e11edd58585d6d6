"""Iterations an hour of a real campaign through the installed command: two lanes of one thread
against one lane of two, on a quiet machine and beside one busy process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from autoresearch.values import Frozen

COMMAND = Path(sys.executable).with_name("autoresearch")


class Throughput(Frozen):
    """Of one campaign."""

    lanes: int
    threads: int
    beside_neighbour: bool
    iterations: int
    an_hour: float
    """Iterations, from the end of the baseline to the last row."""
    trials: int
    """Of them. How many an iteration takes is for its races to say, and so differs by what was
    proposed; trials an hour do not."""
    trials_an_hour: float


def measure(lanes: int, threads: int, *, neighbour: bool, iterations: int) -> Throughput:
    """A campaign of the embedded default and so many iterations."""
    with (
        tempfile.TemporaryDirectory(prefix="autoresearch-bench-") as scratch,
        busy() if neighbour else nullcontext(),
    ):
        campaign = Path(scratch) / "campaign"
        subprocess.run(
            [
                str(COMMAND),
                "loop",
                f"--iters={iterations}",
                f"--lanes={lanes}",
                f"--threads={threads}",
                "--proposer=sampler",
                "--no-confirm",
                f"--campaign={campaign}",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "AUTORESEARCH_LLM_BASE_URL": ""},
        )
        rows = [
            json.loads(line) for line in (campaign / "trajectory.jsonl").read_text().splitlines()
        ]
    trials = sum(len(row["trials"]) for row in rows if row["kind"] == "iteration")
    began = max(_seconds(row) for row in rows if row["kind"] == "baseline")
    ended = max(_seconds(row) for row in rows if row["kind"] == "iteration")
    return Throughput(
        lanes=lanes,
        threads=threads,
        beside_neighbour=neighbour,
        iterations=iterations,
        an_hour=3600 * iterations / (ended - began),
        trials=trials,
        trials_an_hour=3600 * trials / (ended - began),
    )


@contextmanager
def busy() -> Iterator[None]:
    """One process that wants a processor all the time."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _seconds(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(row["at"]).timestamp()
