"""Prepare a learning curve for the detectors: levels instead of points, and an estimate of the
noise.

The loss of one step is that of one batch, so single points are noisy, and no verdict uses one
alone.

- **Level**: the median of some neighboring points, so that one or two hard batches change nothing.
  Two widths are used. ``short`` shows a spike of a few steps. ``wide``, a twentieth of the curve,
  shows a slow rise that noise would hide from the short one.
- **Noise**: the sd of one point about the trend, from differences of neighboring points, in which
  the trend cancels. Only points between the settling and the best level count: before them the
  trend is steep, and what comes after may be trouble. Some batches are much harder than the rest,
  so the estimate is the larger one of those from the median and from the 95 % quantile of the
  differences. Neighbors may also share their noise, by batches from one stretch of text or a slow
  wander of the optimizer. Their differences then show little of it, and the median of a window
  wanders as its points do. So differences over longer and longer lags count too, and levels are
  compared with the observed wander of levels of that width.
- **Excursion**: a stretch in which the level exceeds the best earlier wide level by more than a
  threshold. It ends when the level is back within half of that threshold.

Curves may be sparse (one point every ten steps): widths are in points, results in steps.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.schema import CurvePoint

Floats = NDArray[np.float64]

MIN_POINTS = 20
"""Fewest points of a curve; with fewer, trend and noise cannot be separated."""
MIN_SETTLED = 12
"""Number of points at the end that never belong to the settling."""
MIN_FOR_TAILS = 60
"""Fewest points for the quantile; with fewer, a tail cannot be distinguished from a single spike.
"""
TAILS_MOST = 2.5
"""Largest factor by which the tails may raise the noise; beyond it they are spikes, not hard
batches."""
FEWEST_LAGS = 5
"""Length of the curve, in multiples of a lag, from which that lag is used."""
NOISE_MOST_SHARE = 0.2
"""Largest noise, as a share of the first loss. The mean over a batch of even 64 tokens varies less.
A loss that varies more after the settling is already in trouble, which must not count as noise."""
SHORT_OF = ((60, 3), (200, 5), (math.inf, 7))
"""Points of a short level, for curves of fewer points than the first number. More points separate
hard batches from a spike, which on a sparse curve may last only a few points."""
WIDE_SHARE = 1 / 20
WIDE_MIN, WIDE_MAX = 5, 101
SETTLING_SHARE = 0.05
"""Share of the schedule that counts as settling, unless the warm-up is longer. The first steps jump
about in sound runs too."""

_MEDIAN_SD = math.sqrt(math.pi / 2)
"""The standard error of a median of n normal values is this times sigma / sqrt(n)."""
_MEDIAN_DEVIATION, _OUTER_DEVIATION = 0.6745, 1.9600
"""The median and the 95 % quantile of the absolute value of a standard normal variable."""


@dataclass(frozen=True, slots=True)
class Excursion:
    """A stretch in which the level stays above the best earlier level."""

    start: int
    """Index of its first point."""
    end: int | None
    """Index of the point around which the level is back; None if it does not come back."""
    best: float
    """The level before the rise."""
    peak: float
    """The highest level in it."""


class Curve:
    """A learning curve prepared for the detectors. It has at least MIN_POINTS points."""

    def __init__(self, points: Sequence[CurvePoint], *, steps: int, warmup: int) -> None:
        """
        :param points: the curve, in ascending steps.
        :param steps: steps of the schedule, whether or not the run reached its end.
        :param warmup: steps of the schedule in which the learning rate still rises.
        """
        if len(points) < MIN_POINTS:
            raise ValueError(f"a curve of {len(points)} points cannot be judged")
        self.step = np.array([point.step for point in points])
        self.loss = np.array([point.loss for point in points])
        self.knows_rate = points[0].lr is not None
        """Whether the learning rate is known. A command's curve has only steps and losses, in an
        unknown unit."""
        self.rate = np.array([1.0 if point.lr is None else point.lr for point in points])
        """The learning rate."""
        self.log_grad_norm = np.log([max(point.grad_norm or 0.0, 1e-30) for point in points])
        self.steps = steps
        self.settled = max(warmup, SETTLING_SHARE * steps)
        """The last step of the settling."""
        self.begins = min(
            int(np.searchsorted(self.step, self.settled, "right")), len(self.step) - MIN_SETTLED
        )
        """Index of the first point after the settling."""
        self.noise = min(
            noise_sd(self.loss[self.begins :], self.wide), NOISE_MOST_SHARE * float(self.loss[0])
        )
        """Sd of the loss of one step, in nats per token."""

    @property
    def unit(self) -> str:
        """The unit that follows a loss in a sentence; empty if it is unknown."""
        return " nats per token" if self.knows_rate else ""

    @property
    def short(self) -> int:
        """Points of a short level."""
        return next(width for below, width in SHORT_OF if len(self.step) < below)

    @property
    def last_level(self) -> float:
        """The short level at the end."""
        return float(np.median(self.loss[-self.short :]))

    @property
    def wide(self) -> int:
        """Points of a wide level; odd."""
        return int(np.clip(len(self.step) * WIDE_SHARE, WIDE_MIN, WIDE_MAX)) // 2 * 2 + 1

    @property
    def wide_se(self) -> float:
        """The standard error of a wide level of the loss."""
        return level_se(self.loss[self.begins :], self.noise, self.wide, self.wide)


def noise_sd(x: Floats, wide: int) -> float:
    """Return the sd of one point about the trend; see the module's docstring.

    :param wide: points of a wide level.
    """
    # At least half of the points of the best level lie before any trouble.
    best_at = int(np.argmin(_levels(x, wide))) + wide // 2
    differences = np.diff(x[: max(best_at, MIN_SETTLED)])
    deviations = np.abs(differences - np.median(differences))
    sd = float(np.median(deviations)) / _MEDIAN_DEVIATION
    slow = wander(x[: max(best_at, MIN_SETTLED)], wide)
    if len(deviations) >= MIN_FOR_TAILS:
        outer = float(np.quantile(deviations, 0.95)) / _OUTER_DEVIATION
        sd = max(sd, min(outer, TAILS_MOST * sd))
    return max(sd / math.sqrt(2), slow)


def wander(x: Floats, longest: int) -> float:
    """Return the sd of one value about the trend if neighbors share noise.

    It is the largest sd among second differences over lags from 2 to twice ``longest`` points, in
    which a straight trend cancels.
    """
    largest, lag = 0.0, 2
    while lag <= 2 * longest and len(x) >= FEWEST_LAGS * lag:
        second = x[: -2 * lag] - 2 * x[lag:-lag] + x[2 * lag :]
        sd = float(np.median(np.abs(second))) / _MEDIAN_DEVIATION / math.sqrt(6)
        largest, lag = max(largest, sd), 2 * lag
    return largest


def level_se(x: Floats, sigma: float, points: int, wide: int) -> float:
    """Return the standard error of a level of ``points`` points of ``x``.

    It is the larger of two values: that of independent points of sd ``sigma``, and the wander of
    levels observed before any trouble.
    """
    independent = _MEDIAN_SD * sigma / math.sqrt(points)
    if len(x) < points:
        return independent
    best_at = int(np.argmin(_levels(x, wide))) + wide // 2
    levels = _levels(x, points)[: max(best_at - points, 0)]
    second = levels[: -2 * points] - 2 * levels[points:-points] + levels[2 * points :]
    if len(second) < FEWEST_LAGS:
        return independent
    seen = float(np.median(np.abs(second))) / _MEDIAN_DEVIATION / math.sqrt(6)
    return min(max(independent, seen), sigma)


def excursions(
    curve: Curve, x: Floats, width: int, threshold: float, *, best_at_first: float
) -> Iterator[Excursion]:
    """Yield the excursions of ``x``, a series over the curve's points or the last of them.

    In an excursion, the level of ``width`` points exceeds the best earlier wide level, or
    ``best_at_first``, by more than ``threshold``.
    """
    wide = curve.wide
    levels = _levels(x, width)
    best = np.full(len(levels), best_at_first)
    reached = np.minimum.accumulate(_levels(x, wide))[: len(levels) - wide]
    best[wide : wide + len(reached)] = np.minimum(best_at_first, reached)
    start: int | None = None
    peak = -math.inf
    for index, rise in enumerate((levels - best).tolist()):
        if start is None:
            if rise <= threshold:
                continue
            # The median crosses the threshold with the point in the middle of its window.
            start, peak = index + width // 2, -math.inf
        peak = max(peak, float(levels[index]))
        if rise <= threshold / 2:
            yield Excursion(start, index + width // 2, float(best[index]), peak)
            start = None
    if start is not None:
        # The last points may have ended the excursion, though a wide level does not show that yet.
        over = float(np.median(x[-curve.short :])) <= best[-1] + threshold / 2
        yield Excursion(start, len(x) - 1 if over else None, float(best[-1]), peak)


def _levels(x: Floats, width: int) -> Floats:
    """Return medians of ``width`` neighboring points, [n - width + 1]; the i-th starts at i."""
    windows = np.lib.stride_tricks.sliding_window_view(x, width)
    medians: Floats = np.median(windows, axis=1)
    return medians
