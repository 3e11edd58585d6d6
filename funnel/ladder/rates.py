"""Find the best learning rate at each rung that tried several.

At one rung, the score is modeled as a parabola in the logarithm of the rate, with a separate offset
for each seed; the scatter is pooled over the rungs. The best rate is where the parabola's slope is
zero. Its 95 % interval holds every rate at which the slope cannot be distinguished from zero
(Fieller's method). If the curvature itself is in doubt, the interval reaches the ends of the
searched range.

The rules' rate is 1 throughout. An optimum that stays at 1 from rung to rung shows that the rules
transfer it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autoresearch.values import Frozen, Positive, PositiveInt
from funnel.forecast.robust_fit import Array
from trajectory.statistics.intervals import student_t

LEVEL = 0.95
REACH = 8.0
"""Largest factor over the rules' rate that is searched, and the inverse of the smallest."""
_GRID = 601


class TriedRate(Frozen):
    """One run at one of several rates of a rung."""

    rung: PositiveInt
    params: PositiveInt
    length: PositiveInt
    """Tokens of the run."""
    seed: int
    factor: Positive
    """The rate over the rules' rate."""
    val_bpb: Positive


class RateOptimum(Frozen):
    """The best rate of a rung, as a multiple of what the rules give."""

    rung: PositiveInt
    params: PositiveInt
    length: PositiveInt
    """Tokens of the rung's runs."""
    factor: Positive | None
    """None if the score has no minimum within REACH."""
    low: Positive
    high: Positive
    tried: tuple[Positive, ...]

    @property
    def is_bounded(self) -> bool:
        """Whether the interval lies inside the searched range."""
        inside = self.low > 1.001 / REACH and self.high < REACH / 1.001
        return self.factor is not None and inside

    @property
    def log_sd(self) -> float:
        """Sd of the natural logarithm of ``factor``, as if it were normal: a quarter of the
        interval's width, and at least one percent."""
        return max(0.01, math.log(self.high / self.low) / 4)


@dataclass(frozen=True, slots=True)
class _Parabola:
    """The parabola of one rung: ``slope(u) = b + 2 a u`` over ``u = ln factor``."""

    coefficients: Array
    """The coefficients b and a."""
    covariance: Array
    """Covariance of the coefficients, in units of the scatter's variance."""
    squares: float
    dof: int


def rate_optima(tried: Iterable[TriedRate]) -> tuple[RateOptimum, ...]:
    """Return the best rates, by rung. Rungs with fewer than three rates are left out; without
    degrees of freedom for the scatter, all are."""
    by_rung: dict[int, list[TriedRate]] = {}
    for run in tried:
        by_rung.setdefault(run.rung, []).append(run)
    fitted = {
        rung: _parabola(runs)
        for rung, runs in sorted(by_rung.items())
        if len({run.factor for run in runs}) >= 3
    }
    dof = sum(parabola.dof for parabola in fitted.values())
    if dof == 0:
        return ()
    variance = sum(parabola.squares for parabola in fitted.values()) / dof
    return tuple(
        _optimum(by_rung[rung], parabola, variance, dof) for rung, parabola in fitted.items()
    )


def _parabola(runs: Sequence[TriedRate]) -> _Parabola:
    seeds = sorted({run.seed for run in runs})
    u_N = np.log([run.factor for run in runs])
    design = np.zeros((len(runs), len(seeds) + 2))
    for line, run in enumerate(runs):
        design[line, seeds.index(run.seed)] = 1.0
    design[:, -2], design[:, -1] = u_N, u_N**2
    y_N = np.array([run.val_bpb for run in runs])
    solution, _, rank, _ = np.linalg.lstsq(design, y_N, rcond=None)
    residual_N = y_N - design @ solution
    covariance: Array = np.asarray(np.linalg.pinv(design.T @ design)[-2:, -2:], np.float64)
    return _Parabola(
        solution[-2:], covariance, float(residual_N @ residual_N), len(runs) - int(rank)
    )


def _optimum(
    runs: Sequence[TriedRate], parabola: _Parabola, variance: float, dof: int
) -> RateOptimum:
    t = student_t((1 + LEVEL) / 2, dof)
    u_G = np.linspace(-math.log(REACH), math.log(REACH), _GRID)
    gradient_G2 = np.stack([np.ones(_GRID), 2 * u_G], axis=1)
    slope_G = gradient_G2 @ parabola.coefficients
    sd_G = np.sqrt(
        variance * np.einsum("gi,ij,gj->g", gradient_G2, parabola.covariance, gradient_G2)
    )
    b, a = parabola.coefficients
    best = -b / (2 * a) if a > 0 else math.inf
    inside = abs(best) <= math.log(REACH)
    # If the parabola opens downwards, the rate without a slope is the worst one, and nothing is
    # known.
    possible_G = u_G[np.abs(slope_G) <= t * sd_G] if a > 0 else u_G
    ends = possible_G if len(possible_G) else np.array([np.clip(best, u_G[0], u_G[-1])])
    return RateOptimum(
        rung=runs[0].rung,
        params=runs[0].params,
        length=runs[0].length,
        factor=math.exp(best) if inside else None,
        low=math.exp(float(ends.min())),
        high=math.exp(float(ends.max())),
        tried=tuple(sorted({run.factor for run in runs})),
    )
