"""How many turns a model is given, by how often it and the sampler are kept: chance alone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import fmean

from agent.proposers.hybrid import SHARE, WARMUP, has_earned, is_lent
from bench.figure import Figure
from bench.models.policies import thompson
from trajectory.track_record import TrackRecord

NIGHTS = 1000
ITERATIONS = 100
RATES = (
    *((0.0, 0.03), (0.0, 0.1), (0.1, 0.1), (0.1, 0.05)),
    *((0.2, 0.1), (0.2, 0.05), (0.3, 0.1), (0.3, 0.03)),
)
"""The share of turns that are kept: the model's, and the sampler's."""

Policy = Callable[[int, Random, TrackRecord, TrackRecord], bool]
"""Whether the model has a turn, counted from 1 after warm-up."""


def product(number: int, rng: Random, model: TrackRecord, sampler: TrackRecord) -> bool:
    """As :class:`~agent.proposers.hybrid.HybridProposer` gives them."""
    return has_earned(model, sampler) or is_lent(number, SHARE)


def by_thompson(number: int, rng: Random, model: TrackRecord, sampler: TrackRecord) -> bool:
    """Thompson's sampling."""
    return thompson(rng, model, sampler)


def turns(rates: tuple[float, float], policy: Policy, seed: int) -> int:
    """The model's turns of one night."""
    rng = Random(seed)
    model = sampler = TrackRecord()
    for number in range(1 - WARMUP, ITERATIONS - WARMUP + 1):
        if number > 0 and policy(number, rng, model, sampler):
            model = model.after(kept=rng.random() < rates[0])
        else:
            sampler = sampler.after(kept=rng.random() < rates[1])
    return model.turns


def run() -> list[Figure]:
    """The mean over many nights, and Thompson's beside it."""
    figures = []
    for rates in RATES:
        ours, other = (
            [turns(rates, policy, seed) for seed in range(NIGHTS)]
            for policy in (product, by_thompson)
        )
        lent = sum(is_lent(number, SHARE) for number in range(1, ITERATIONS - WARMUP + 1))
        no_more = sum(one == lent for one in ours) / NIGHTS
        figures.append(
            Figure(
                f"turns of {ITERATIONS - WARMUP} of a model kept in {rates[0]:.0%}, "
                f"sampler {rates[1]:.0%}",
                fmean(ours),
                "turns",
                note=f"no more than lent in {no_more:.0%} of {NIGHTS} nights; by Thompson's "
                f"sampling {fmean(other):.0f}",
            )
        )
    return figures
