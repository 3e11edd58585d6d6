"""Measure what the luck of the baseline's first run decides.

In worlds where a seed explains nothing, half, or nearly all of a run's variance:

- **kept gains**: ideas worth one sd of a run, or nothing, race against the baseline, which stays.
- **true gain**: of whole campaigns of 205 runs.

The baselines are sorted by the luck of seed 0, and the luckiest fifth may lose at most a tenth of
what all have. There are two readings of that luck. One is the run less the mean of the baseline's
runs, which a judge can know. The other is the run less the baseline's true score. It is harder,
since it also selects baselines whose mean is lucky, which no judge can see in these runs alone.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from bench.figure import Figure
from bench.judge_honesty import RUNS
from bench.judge_nights import BASELINE_SEEDS, Night, nights
from bench.judge_worlds import SIGMA, World, shared_seeds
from trajectory.rows import Rules

SHARES = (0.0, 0.5, 0.95)
PROBED = 400
RACES = 40
CAMPAIGNS = 200
MOST_LOST = 0.1


class ProbedNight(Night):
    """A campaign in which every idea races against the baseline."""

    @property
    def incumbent(self) -> str:
        return self.evidence.baseline_hash or ""


def run() -> list[Figure]:
    """Return all figures, world by world."""
    figures = []
    for share in SHARES:
        world, where = shared_seeds(share), f"seeds explain {100 * share:.0f} %"
        figures += [*_probes(where, world), *_campaigns(where, world)]
    return figures


def _probes(where: str, world: World) -> list[Figure]:
    def half_gain(rng: random.Random) -> float:
        return rng.choice((0.0, SIGMA))

    halves = replace(world, gain=half_gain)
    ended = list(
        nights(
            ProbedNight, halves, Rules(), PROBED, lambda night: night.evidence.iterations >= RACES
        )
    )

    def kept(night: Night) -> float:
        return 100 * (night.keeps - night.nulls_kept) / (night.evidence.iterations - night.nulls)

    false = 100 * sum(night.nulls_kept for night in ended) / sum(night.nulls for night in ended)
    return [
        *_by_luck(f"kept gains of one sd ({where})", "%", ended, kept),
        Figure(f"kept ideas worth nothing ({where})", false, "%", note=f"{PROBED} baselines"),
    ]


def _campaigns(where: str, world: World) -> list[Figure]:
    ended = list(nights(Night, world, Rules(), CAMPAIGNS, lambda night: night.runs >= RUNS))
    keeps = sum(night.keeps for night in ended)
    false = 100 * sum(night.false_keeps for night in ended) / keeps
    name = f"true gain at {RUNS} runs ({where})"
    gain = _by_luck(name, "bpb", ended, lambda night: night.true_gain)
    return [*gain, Figure(f"keeps that gained nothing ({where})", false, "%")]


def _by_luck(
    name: str, unit: str, ended: Sequence[Night], value: Callable[[Night], float]
) -> list[Figure]:
    """Return the mean over all campaigns, and over the luckiest fifth of baselines by each
    reading."""
    every = fmean(map(value, ended))
    figures = [Figure(name, every, unit, note=f"{len(ended)} baselines")]
    for reading, luck in (("its own mean", _luck), ("the truth", _true_luck)):
        worst = fmean(map(value, sorted(ended, key=luck)[: len(ended) // 5]))
        goal, met = f"at least {1 - MOST_LOST:.0%} of all", worst >= (1 - MOST_LOST) * every
        where = f"of the luckiest fifth by seed 0 less {reading} ({name})"
        figures.append(Figure(where, worst, unit, goal, met))
    return figures


def _luck(night: Night) -> float:
    scores = night.evidence.configs[night.evidence.baseline_hash or ""].scores
    return scores[0] - fmean(scores[seed] for seed in range(BASELINE_SEEDS))


def _true_luck(night: Night) -> float:
    baseline = night.evidence.baseline_hash or ""
    return night.evidence.configs[baseline].scores[0] - night.recipes[baseline].bpb
