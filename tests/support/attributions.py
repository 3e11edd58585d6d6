"""Scores of a winner, its baseline and the winner without each change, from a world whose truth is
known and whose noise is as campaigns have it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

Scores = dict[str, dict[int, float]]
"""By config and seed; ``W`` is the winner, ``B`` the baseline, ``0`` … the winner without each."""


def simulated(
    rng: random.Random,
    alone: list[float],
    together: float,
    *,
    seeds: int = 4,
    equal_noise: bool = False,
) -> Scores:
    """Seeds move all configs, each by its own factor; the noise of a config is its own (0.014 bpb a
    run for good ones, several times that for poor ones), and its tails are heavy.

    :param alone: what each change is worth where the others are.
    :param together: what the gain has beyond their sum.
    :param equal_noise: one normal noise for all instead.
    """
    means = {"W": 2.5, "B": 2.5 + sum(alone) + together}
    means |= {f"{number}": 2.5 + worth for number, worth in enumerate(alone)}
    shared = [rng.gauss(0, 0.03) for _ in range(seeds)]
    scores: Scores = {}
    for name, mean in means.items():
        sd, follows = 0.014, 1.0
        if not equal_noise:
            sd *= math.exp(rng.gauss(0, 0.6)) * (1 + 6 * max(0.0, mean - 2.5))
            follows = rng.uniform(0.5, 1.3)
        scores[name] = {
            seed: mean
            + follows * shared[seed]
            + sd * (rng.gauss(0, 1) if equal_noise else _heavy(rng))
            for seed in range(seeds)
        }
    return scores


def _heavy(rng: random.Random) -> float:
    """Student's t of four degrees of freedom, its variance one."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2, 1))


def worlds(
    rng: random.Random, count: int, *, seeds: int = 4, equal_noise: bool = False
) -> Iterator[tuple[list[float], float, Scores]]:
    """Changes that help, harm and do nothing, and that interact: what each is worth alone, what
    the gain has beyond that, and the scores."""
    for _ in range(count):
        alone = [rng.choice([0.0, 0.0, 0.01, 0.03, 0.08, -0.03]) for _ in range(rng.randint(2, 7))]
        together = rng.gauss(0, 0.03)
        scores = simulated(rng, alone, together, seeds=seeds, equal_noise=equal_noise)
        yield alone, together, scores


def names(count: int) -> list[str]:
    """Of the configs without each change."""
    return [str(number) for number in range(count)]
