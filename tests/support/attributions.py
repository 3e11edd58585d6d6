"""Simulated scores of a winner, its baseline and the winner without each change.

The true effects are known, and the noise is like that of real campaigns.
"""

import math
import random
from collections.abc import Iterator

Scores = dict[str, dict[int, float]]
"""Scores by config and seed; ``W`` is the winner, ``B`` the baseline, ``0`` … the winner without
each."""


def simulated(
    rng: random.Random,
    alone: list[float],
    together: float,
    *,
    seeds: int = 4,
    equal_noise: bool = False,
) -> Scores:
    """Draw scores in which a seed shifts all configs, each by its own factor.

    Each config has noise of its own with heavy tails: 0.014 bpb per run for good configs, several
    times that for poor ones.

    :param alone: effect of each change in the presence of the others.
    :param together: the gain beyond the sum of these effects.
    :param equal_noise: use one normal noise for all configs.
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
    """Draw from Student's t with four degrees of freedom, scaled to a variance of one."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2, 1))


def worlds(
    rng: random.Random, count: int, *, seeds: int = 4, equal_noise: bool = False
) -> Iterator[tuple[list[float], float, Scores]]:
    """Yield worlds in which changes help, harm, do nothing and interact.

    Each is the effect of each change alone, the gain beyond their sum, and the scores.
    """
    for _ in range(count):
        alone = [rng.choice([0.0, 0.0, 0.01, 0.03, 0.08, -0.03]) for _ in range(rng.randint(2, 7))]
        together = rng.gauss(0, 0.03)
        scores = simulated(rng, alone, together, seeds=seeds, equal_noise=equal_noise)
        yield alone, together, scores


def names(count: int) -> list[str]:
    """Return the names of the configs without one change each."""
    return [str(number) for number in range(count)]
