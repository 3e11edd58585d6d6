"""The sampler against chance and TPE, in the made-up world; how long an ask takes.

Other worlds, searches and numbers of nights: ``python -m bench.simulator searches``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent.menu.files import load_menu
from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.sampler import SamplerProposer
from agent.proposers.uniform import RandomProposer
from bench.figure import Figure
from bench.searches import ask_time
from bench.searches.tpe import TpeProposer
from bench.simulator.comparison import NightStore, Plan, regrets, spend
from bench.simulator.made_up import MadeUpWorld
from bench.simulator.searches import SEARCHES
from trainer.spec import Budget

NIGHTS, ITERATIONS = 12, 100
COMPARED = ("uniform", "TPE", "sampler")


def run() -> list[Figure]:
    """Mean regret of each, and how far the sampler is ahead of chance."""
    rails = Rails(load_menu("cpu-tiny"), budget=Budget())
    proposers: dict[str, Proposer] = {
        "uniform": RandomProposer(rails),
        "TPE": TpeProposer(rails),
        "sampler": SamplerProposer(rails, chance=0.0),
    }
    return [*_nights(), *ask_time.figures(proposers)]


def _nights() -> list[Figure]:
    world, plan = MadeUpWorld(), Plan(NIGHTS, ITERATIONS)
    with tempfile.TemporaryDirectory() as scratch:
        store = NightStore(Path(scratch) / "nights.jsonl")
        spent = {
            name: spend(world.name, [world], (name, SEARCHES[name]), plan, store)
            for name in COMPARED
        }
    figures = []
    for name, regret, ahead in regrets(spent, "uniform", lambda night: night.regret(ITERATIONS)):
        figures.append(
            Figure(
                f"regret after {ITERATIONS} iterations, {name}",
                1000 * regret.value,
                "mbpb",
                note=f"± {1000 * regret.stderr:.1f}; {NIGHTS} nights in the made-up world; against "
                f"uniform edits {ahead}",
            )
        )
    return figures
