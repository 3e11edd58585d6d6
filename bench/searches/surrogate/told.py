"""What a surrogate is told of a campaign, and why:

- One number per config, the mean of its runs, with the variance of so many runs.
- What a seed did to the reference it does in part to its neighbours, and that part is taken off:
  as much as the campaign's own races show that configs share, at first nothing.
- Only what is better than the reference needs telling apart finely. A ruinous learning rate is
  ten times as far from it as any gain, so what is much worse is drawn together, by a logarithm.
- A config that failed has no number: a penalty would need an invented size, and poisons the search
  (arXiv 2603.24647). That it failed is learned apart.
- Of all configs the sampler's own choice, :data:`BEST` and :data:`LATEST` of them: as quick after a
  hundred thousand rows as after a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from agent.proposers.base import Memory
from bench.searches.surrogate.space import Floats, Space, Values
from trajectory.evidence import ConfigEvidence, Tally
from trajectory.ranking import Noise

BEST = 100
LATEST = 100


@dataclass(frozen=True, slots=True)
class Scores:
    """N configs as a surrogate sees them, the reference at 0 and gains below it."""

    values: tuple[Values, ...]
    points: Floats
    """[N, P]"""
    targets: Floats
    """[N]"""
    variances: Floats
    """[N]: of the noise in each target."""
    unit: float
    """Bits per byte in one unit of the targets, near the reference and below it."""

    @classmethod
    def of(
        cls,
        memory: Memory,
        space: Space,
        told: Sequence[ConfigEvidence],
    ) -> Self:
        sigma = memory.evidence.sigma or 0.0
        reference = memory.evidence.configs[memory.reference.config_hash]
        share = shared(memory.evidence.tally)
        effects = {
            seed: share * (score - reference.mean) for seed, score in reference.scores.items()
        }
        seen = [(memory.menu.knob_values(entry.config), entry) for entry in told]
        inside = [(values, entry) for values, entry in seen if space.contains(values)]
        score_N = np.array([_without(effects, entry) for _, entry in inside])
        runs_N = np.array([entry.n for _, entry in inside], dtype=np.float64)
        all_values = tuple(values for values, _ in inside)
        above_N = score_N - reference.mean
        unit = max(float(np.median(np.abs(above_N))), 2 * sigma, 1e-9)
        target_N = above_N / unit
        far_N = np.maximum(target_N, 1)
        return cls(
            values=all_values,
            points=space.points(all_values),
            targets=np.where(target_N > 1, 1 + np.log(far_N), target_N),
            variances=(sigma / unit) ** 2 / runs_N / far_N,
            unit=unit,
        )


def shared(tally: Tally) -> float:
    """How far two configs' runs on one seed go together: their correlation, as far as the
    differences in races are smaller than those of unpaired runs would be."""
    noise = Noise.of(tally)
    if noise is None or not noise.sigma:
        return 0.0
    return min(max(1 - noise.sigma_d**2 / (2 * noise.sigma**2), 0.0), 1.0)


def _without(effects: dict[int, float], entry: ConfigEvidence) -> float:
    """Its mean, without what its seeds did to the reference."""
    rest = (score - effects.get(seed, 0.0) for seed, score in entry.scores.items())
    return math.fsum(rest) / entry.n
