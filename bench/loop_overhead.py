"""Measure the loop's overhead per iteration: all except training, evaluating and proposing.

The figures come from the journal of a real campaign of the embedded default, run with the installed
command. The overhead is the time from one row's end to the next, minus the seconds that its trials
report for training and evaluation, and its proposer for proposing. It includes journal fsync,
process start, sandbox, model building and the judge.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure

ITERATIONS = 25
GOAL_MS = 40.0


def run() -> list[Figure]:
    """Return median and spread of the overhead, per iteration and per trial."""
    with tempfile.TemporaryDirectory() as scratch:
        campaign = Path(scratch) / "campaign"
        subprocess.run(
            [
                str(Path(sys.executable).with_name("autoresearch")),
                "loop",
                f"--iters={ITERATIONS}",
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
    iterations = [row for row in rows if row["kind"] == "iteration"]
    overheads_ms, trial_ms, iteration_s, evaluations_s = [], [], [], []
    for before, row in itertools.pairwise(iterations):
        elapsed_s = _seconds(row) - _seconds(before)
        results = [trial["result"] for trial in row["trials"]]
        if not results or any(result["status"] != "ok" for result in results):
            continue
        busy_s = sum(result["train_s"] + result["eval_s"] for result in results)
        overhead_ms = 1e3 * (elapsed_s - busy_s - row["proposer"]["latency_s"])
        overheads_ms.append(overhead_ms)
        trial_ms.append(overhead_ms / len(results))
        iteration_s.append(elapsed_s)
        evaluations_s += [result["eval_s"] for result in results]
    overhead = median(overheads_ms)
    return [
        Figure(
            "loop overhead per iteration",
            overhead,
            "ms",
            f"at most {GOAL_MS:g} ms",
            overhead <= GOAL_MS,
            f"median of {len(overheads_ms)} iterations, range {min(overheads_ms):.0f} to "
            f"{max(overheads_ms):.0f}; process start, set-up and fsync included",
        ),
        Figure(
            "the same per trial", median(trial_ms), "ms", note="an iteration runs 1 to 8 trials"
        ),
        Figure("whole iteration", median(iteration_s), "s", note="cpu-tiny, sampler"),
        Figure("evaluation of the held-out text", median(evaluations_s), "s", note="per trial"),
    ]


def _seconds(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(row["at"]).timestamp()
