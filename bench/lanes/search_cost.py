"""What parallelism costs the search: the true gain after so many iterations by lanes, in the
simulator's made-up world, where a night's trials take their time by a clock of its own."""

from __future__ import annotations

from agent.proposers.sampler import SamplerProposer
from autoresearch.values import Frozen
from bench.simulator.made_up import MadeUpWorld
from bench.simulator.night import night


class Parallel(Frozen):
    """One night."""

    lanes: int
    seed: int
    iterations: int
    gain: float
    """Of the last reference over the baseline, true; positive is better."""
    keeps: int
    false_keeps: int
    runs: int


def measure(lanes: int, seed: int, iterations: int) -> Parallel:
    """The product's sampler, judge and loop, on so many lanes."""
    found = night(MadeUpWorld(), SamplerProposer, seed=seed, iterations=iterations, lanes=lanes)
    return Parallel(
        lanes=lanes,
        seed=seed,
        iterations=iterations,
        gain=found.true_gain,
        keeps=found.keeps,
        false_keeps=found.false_keeps,
        runs=found.runs,
    )
