"""Define the noise of one run's score."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trajectory.statistics.student import student_t

LEVEL = 0.95
"""Confidence level of every interval."""


@dataclass(frozen=True, slots=True)
class RunNoise:
    """Noise of one run's score, this project's or another tool's."""

    sigma: float
    """Pooled standard deviation of one run within a config."""
    dof: int
    """Degrees of freedom of sigma."""

    def half_interval(self, n: int = 1) -> float:
        """Return half the 95 % interval of a mean of ``n`` runs: ``t sigma / sqrt(n)``."""
        return student_t((1 + LEVEL) / 2, self.dof) * self.sigma / math.sqrt(n)
