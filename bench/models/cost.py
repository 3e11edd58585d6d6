"""What taking part of a model costs, over nights that are paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Cost:
    """The share of the sampler's gain that is missing; negative: that was added."""

    mean: float
    lo: float
    """The middle 95 % of the resamples."""
    hi: float

    @classmethod
    def of(cls, gains: Sequence[float], alone: Sequence[float]) -> Cost:
        """A ratio of sums over the same nights."""
        rng = Random(0)
        numbers = range(len(gains))
        drawn = [rng.choices(numbers, k=len(gains)) for _ in range(RESAMPLES)]
        costs = sorted(
            1 - sum(gains[i] for i in each) / sum(alone[i] for i in each) for each in drawn
        )
        middle = RESAMPLES // 40
        return cls(1 - sum(gains) / sum(alone), costs[middle], costs[-middle - 1])

    def __str__(self) -> str:
        return f"{100 * self.lo:+.1f} to {100 * self.hi:+.1f} %"
