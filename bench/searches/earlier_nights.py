"""What a night is told of an earlier one: warm starts from priors, by the product's own way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from agent.proposers.priors import Prior, read_priors
from agent.proposers.uniform import RandomProposer
from agent.search.goal import Goal
from bench.simulator.account import Account
from bench.simulator.executor import SimulatedExecutor
from bench.simulator.night import put_together, scratch_campaign
from bench.simulator.world import World
from trajectory.rules import Rules

ITERATIONS = 40
OTHER_SEED = 500_000

Told: TypeAlias = Callable[[World, int], tuple[Prior, ...]]
"""Of a world and the seed of a night in it."""


def earlier(world: World, seed: int) -> tuple[Prior, ...]:
    """A night of uniform edits in the same world, with other seeds."""
    with (
        scratch_campaign(world, {"seed": seed + OTHER_SEED}) as campaign,
        SimulatedExecutor(world) as executor,
    ):
        watcher = Account(world, campaign)
        loop = put_together(campaign, RandomProposer, Rules(), executor, watcher)
        loop.run(Goal(iterations=ITERATIONS))
        nowhere = Path(campaign.directory.parent / "none")
        return read_priors([campaign.directory], world.menu, own=nowhere)


def misleading(world: World, seed: int) -> tuple[Prior, ...]:
    """The same night, in which what was good is told as bad."""
    return tuple(
        replace(prior, configs=tuple(replace(one, gain=-one.gain) for one in prior.configs))
        for prior in earlier(world, seed)
    )
