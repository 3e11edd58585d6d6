"""What the ranking claims early in a campaign, when its spread and its noise are hardly known.

Two beginnings: every idea was dropped after one run, so that nothing but the baseline was
replicated, and races as they are. True scores are normal about the baseline's, so the spread that
the population is believed to have can be held against the true one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from bench.figure import Figure
from bench.judge_honesty import share, told
from bench.judge_nights import Night, nights
from bench.judge_worlds import World, worlds
from trajectory.ranking import Noise, population_of
from trajectory.rules import Rules

CAMPAIGNS = 200
CONFIGS = (5, 10, 20)
TAU = 0.05
"""Of the true scores, in bits per byte; one run has sd 0.045."""
GOAL = (92, 98)
DROPPED_AT_ONCE = Rules(first_drop=-1e6)


def run() -> list[Figure]:
    """Coverage and the spread's estimate, by beginning and number of configs."""
    return [
        figure
        for configs in CONFIGS
        for name, rules in (("one run each", DROPPED_AT_ONCE), ("raced", Rules()))
        for figure in _figures(f"{configs} configs, {name}", configs, rules)
    ]


def _figures(where: str, configs: int, rules: Rules) -> Iterator[Figure]:
    ended = list(
        nights(
            _normal(),
            rules,
            CAMPAIGNS,
            enough=lambda night: night.evidence.iterations >= configs,
        )
    )
    seen = [told(night) for night in ended]
    yield share(f"of all configs ({where})", (one.every for one in seen), GOAL)
    yield share(f"of all differences ({where})", (one.every_difference for one in seen), GOAL)
    if rules is DROPPED_AT_ONCE and (variances := list(_variances(ended))):
        ratio = fmean(variances) / TAU**2
        yield Figure(f"the spread's variance, of the true one ({where})", ratio, "")


def _variances(ended: list[Night]) -> Iterator[float]:
    for night in ended:
        population = population_of(night.evidence, Noise.of(night.evidence.tally))
        if population is not None:
            yield population.sd**2


def _normal() -> World:
    """W1 with ideas that are worth N(0, TAU²)."""
    return replace(worlds()["W1"], name="normal", gain=_gain)


def _gain(rng: random.Random) -> float:
    return rng.gauss(0, TAU)
