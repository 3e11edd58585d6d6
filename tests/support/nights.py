"""A short campaign in a world where only the learning rate matters, and what it wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent.menu.rails import Rails
from agent.proposers.uniform import RandomProposer
from agent.search.campaign import Campaign
from agent.search.campaign_settings import new_settings
from agent.search.goal import Goal
from agent.search.loop import Loop
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner
from bench.simulator.executor import SimulatedExecutor
from bench.simulator.night import _Account, _no_corpus, _NoMeter
from tests.support.worlds import RateWorld
from trajectory.history.tables import MEMORY

CLOCKS = frozenset(
    "at created_at id wall_s latency_s elapsed_s energy_wh versions hardware corpus_dir".split()
)
"""What differs from one run of the same campaign to the next."""


def one_lane(directory: Path, iterations: int, *, seed: int = 3) -> list[dict[str, Any]]:
    """The rows of a campaign whose trials run one after another, without their clocks."""
    world = RateWorld(0.05, curves=True)
    directory.mkdir(parents=True, exist_ok=True)
    settings = new_settings(world.menu, world.menu.name, {"seed": seed, "max_changes": 2})
    with (
        Campaign(
            directory / "campaign",
            settings,
            world.menu,
            _no_corpus(directory),
            sandbox="simulated",
            history_url=MEMORY,
        ) as campaign,
        SimulatedExecutor(world) as executor,
    ):
        rails = Rails(world.menu, budget=settings.budget, max_changes=2)
        stop, watcher = StopRequest(), _Account(world, campaign)
        loop = Loop(
            campaign=campaign,
            proposer=RandomProposer(rails),
            rails=rails,
            rules=settings.rules(),
            runner=TrialRunner(
                campaign.directory / "trials",
                campaign.trial_spec,
                executor,
                campaign.history.trial_ids(),
                stop,
                watcher,
            ),
            watcher=watcher,
            stop=stop,
            meter=_NoMeter(),
        )
        loop.run(Goal(iterations=iterations))
    journal = (directory / "campaign" / "trajectory.jsonl").read_text("utf-8")
    return [without_clocks(json.loads(line)) for line in journal.splitlines()]


def without_clocks(value: Any) -> Any:
    """A row without what no two runs have in common."""
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in CLOCKS}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value
