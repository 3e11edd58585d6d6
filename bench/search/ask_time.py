"""Measure how long a search takes for a proposal, and how long it takes to load."""

import subprocess
import sys
import time
from dataclasses import replace
from statistics import median

from agent.proposers.base import Proposer, SearchView
from bench.figure import Figure
from tests.support.memories import MENU, memory_of

ASKS = 15
FEW, MANY = 100, 10_000
GOAL_MS = {FEW: 60, MANY: 200}
LOADED = "agent.proposers.sampler"


def asked(proposer: Proposer, view: SearchView) -> float:
    """Return the median processor time of a proposal, in milliseconds."""
    took = []
    for number in range(ASKS):
        began = time.process_time()
        proposer.propose(replace(view, iter=view.iter + number))
        took.append(1000 * (time.process_time() - began))
    return median(took)


def loading(module: str, *, beside: str) -> float:
    """Return the seconds of processor time to load a module after loading ``beside``."""
    script = (
        f"import {beside}, time; began = time.process_time(); import {module}; "
        "print(time.process_time() - began)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    return median(float(run.stdout) for run in runs)


def figures(proposers: dict[str, Proposer]) -> list[Figure]:
    """Return each search's times at both sizes of a campaign, and the times to load its modules."""
    rows = []
    for configs, goal in GOAL_MS.items():
        view = replace(memory_of(configs), max_changes=len(MENU.knobs))
        for name, proposer in proposers.items():
            took = asked(proposer, view)
            rows.append(
                Figure(
                    f"{name}: an ask at {configs:,} configs",
                    took,
                    "ms",
                    f"<= {goal}",
                    took <= goal,
                    f"processor time, median of {ASKS}",
                )
            )
    for module in (LOADED, "optuna"):
        note = "processor time, beside the menu and the rails; median of 5"
        rows.append(
            Figure(f"loading {module}", loading(module, beside="agent.menu.rails"), "s", note=note)
        )
    return rows
