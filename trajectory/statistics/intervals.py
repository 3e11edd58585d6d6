"""Compute intervals from Student's t for any degrees of freedom, and exact sums of squares.

Satterthwaite's degrees of freedom are rarely integers. Rounded down, they would jump at
infinitesimal changes of the variances behind them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean

AS_GOOD_AS_NORMAL = 1e6
"""Degrees of freedom beyond which the normal quantile is used; at 95 % it is 2.4e-6 too small."""
_TINY = 1e-300
_EPSILON = 1e-15
_MAX_TERMS = 10_000
_MAX_STEPS = 200


@lru_cache(maxsize=4096)
def student_t(p: float, dof: float) -> float:
    """Return the p-quantile, 0.5 < p < 1.

    It uses Newton's method on the distribution function, with bisection if a step leaves the
    bounds.
    """
    if dof > AS_GOOD_AS_NORMAL:
        return NormalDist().inv_cdf(p)
    low, high = 0.0, 1.0
    while _upper_tail(high, dof) > 1 - p:
        low, high = high, 2 * high
    t = (low + high) / 2
    log_scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(math.pi * dof) / 2
    for _ in range(_MAX_STEPS):
        excess = _upper_tail(t, dof) - (1 - p)
        low, high = (t, high) if excess > 0 else (low, t)
        density = math.exp(log_scale - (dof + 1) / 2 * math.log1p(t * t / dof))
        step = t + excess / density
        following = step if low < step < high else (low + high) / 2
        if abs(following - t) <= 1e-10 * t:
            return following
        t = following
    return t


def _upper_tail(t: float, dof: float) -> float:
    """Return the probability of more than ``t > 0`` (Abramowitz and Stegun 26.7.1)."""
    return incomplete_beta(dof / 2, 0.5, dof / (dof + t * t), t * t / (dof + t * t)) / 2


def incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularized ``I_x(a, b)``.

    :param rest: ``1 - x``, which the caller knows to more digits near ``x = 1``.
    """
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, rest, x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / a
    return front * _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of ``I_x(a, b)`` (Abramowitz and Stegun 26.5.8).

    It uses Lentz's method after Thompson and Barnett (Journal of Computational Physics 64, 1986).
    """
    c, d, value = 1.0, 0.0, 1.0
    for term in range(1, _MAX_TERMS):
        half = term // 2
        odd, even = -(a + half) * (a + b + half), half * (b - half)
        factor = (odd if term % 2 else even) * x / ((a + term - 1) * (a + term))
        c = 1 + factor / c or _TINY
        d = 1 / (1 + factor * d or _TINY)
        value *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return 1 / value


LEVEL = 0.95
"""Confidence level of every interval."""
_UPPER = (1 + LEVEL) / 2


@dataclass(frozen=True, slots=True)
class RunNoise:
    """Noise of one run's score, this project's or another tool's."""

    sigma: float
    """Pooled standard deviation of one run within a config."""
    dof: int
    """Degrees of freedom of sigma."""

    def half_interval(self, n: int = 1) -> float:
        """Return half the 95 % interval of a mean of ``n`` runs: ``t sigma / sqrt(n)``."""
        return student_t(_UPPER, self.dof) * self.sigma / math.sqrt(n)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or proportion, its 95 % interval if it has one, and the number of values behind it."""

    value: float
    lo: float | None
    hi: float | None
    n: int


def of_mean(values: Sequence[float]) -> Estimate:
    """Return ``mean ± t sd / sqrt(n)`` with the sd of these values; no interval for fewer than
    two."""
    mean, n = fmean(values), len(values)
    if n < 2:
        return Estimate(mean, None, None, n)
    squares = math.fsum((value - mean) ** 2 for value in values)
    half = student_t(_UPPER, n - 1) * math.sqrt(squares / (n - 1) / n)
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


def exact_parts(terms: Sequence[float]) -> tuple[float, ...]:
    """Return the fewest floats whose exact sum is that of these finite terms, the largest first.

    Adding a number and later subtracting it leaves no trace, and the order of additions does not
    matter. So a sum updated over a hundred thousand changes equals one computed from scratch.
    """
    parts: list[float] = []
    while rest := math.fsum([*terms, *(-part for part in parts)]):
        parts.append(rest)
    return tuple(parts)
