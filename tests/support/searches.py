"""Run searches over a synthetic objective, with and without earlier campaigns to learn from."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

from agent.proposers.priors import Prior, PriorConfig
from agent.proposers.sampler import SamplerProposer
from autoresearch.errors import SpecError
from tests.support.memories import MENU, RAILS, fresh_memory, remember
from trainer.schema import Config

SIGMA = 0.03

Objective = Callable[[Config], float]
"""The true val_bpb of a config."""


def objective(lr: float, beta2: float, d_ff: int) -> Objective:
    """Return an objective with its optimum at one learning rate, beta2 and width."""

    def bpb(config: Config) -> float:
        return (
            3.5
            + 0.30 * min(1.5, math.log10(config.lr / lr) ** 2)
            + 0.15 * min(1.5, math.log10((1 - config.beta2) / (1 - beta2)) ** 2)
            + 0.10 * min(1.5, abs(math.log2(config.d_ff / d_ff)))
        )

    return bpb


HERE = objective(lr=8e-3, beta2=0.99, d_ff=1024)
ELSEWHERE = objective(lr=1e-4, beta2=0.85, d_ff=256)
"""An objective under which the best values of the other one are bad."""


def prior_of(bpb: Objective, configs: int = 60, seed: int = 0) -> Prior:
    """Return a campaign that measured random configs, on a scale ten times this one's."""
    rng = Random(seed)
    told: list[PriorConfig] = []
    start = bpb(MENU.baseline)
    while len(told) < configs:
        names = rng.sample(list(MENU.knobs), 4)
        try:
            config = MENU.apply(
                MENU.baseline, {name: MENU.domains[name].draw(rng) for name in names}
            )
        except SpecError:
            continue
        gain = (bpb(config) - start) / SIGMA + rng.gauss(0, 1)
        told.append(PriorConfig(MENU.knob_values(config), gain))
    return Prior("elsewhere", "0" * 64, configs, tuple(told), (), 0, None)


def search(
    bpb: Objective, iterations: int, seed: int, priors: tuple[Prior, ...] = ()
) -> list[float]:
    """Return the true val_bpb of the best config found, after each iteration."""
    proposer = SamplerProposer(RAILS)
    rng = Random(seed)
    memory = replace(fresh_memory(), seed=seed, priors=priors)
    best = bpb(MENU.baseline)
    found: list[float] = []
    for _ in range(iterations):
        changes = dict(proposer.propose(memory).reply.changes)
        config = MENU.apply(memory.reference, changes)
        memory = remember(memory, changes, bpb(config) + rng.gauss(0, SIGMA))
        if bpb(config) < best:
            best = bpb(config)
            memory = replace(memory, reference=config)
        found.append(best)
    return found
