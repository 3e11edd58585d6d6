"""Intervals of means, runs and proportions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, stdev

from trajectory.statistics.run_noise import LEVEL, RunNoise
from trajectory.statistics.student import student_t

_UPPER = (1 + LEVEL) / 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or proportion, its 95 % interval if it has one, and the number of values behind it."""

    value: float
    lo: float | None
    hi: float | None
    n: int


@cache
def t_quantile(dof: int) -> float:
    """Return the quantile of Student's t, two-sided at 95 %."""
    return student_t(_UPPER, dof)


def of_mean(values: Sequence[float]) -> Estimate:
    """Return ``mean ± t sd / sqrt(n)`` with the sd of these values; no interval for fewer than
    two."""
    mean, n = fmean(values), len(values)
    if n < 2:
        return Estimate(mean, None, None, n)
    half = t_quantile(n - 1) * stdev(values) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def of_runs(mean: float, n: int, noise: RunNoise | None) -> Estimate:
    """Return ``mean ± t sigma / sqrt(n)``, where sigma is the pooled sd of one run within a
    config."""
    if noise is None:
        return Estimate(mean, None, None, n)
    half = noise.half_interval(n)
    return Estimate(mean, mean - half, mean + half, n)


def of_share(successes: int, n: int) -> Estimate | None:
    """Return a proportion with Wilson's score interval (JASA 22, 1927); None if ``n`` is 0."""
    if n == 0:
        return None
    z, share = NormalDist().inv_cdf(_UPPER), successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half), n)
