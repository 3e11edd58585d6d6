"""A learning curve as the detectors see it: levels instead of points, and how noisy it is.

The loss of one step is of one batch, so single points are noisy, and nothing is judged by one.

- **Level**: the median of some neighbouring points, so that a hard batch or two change nothing.
  Two widths are used: ``short``, where a spike of a few steps shows, and ``wide``, a twentieth of
  the curve, where a slow rise shows that noise would hide from the short one.
- **Noise**: sd of one point about the trend, from the differences of neighbouring points, out of
  which the trend drops. Only points between the settling and the best level count: before, the
  trend is steep, and what comes after may be trouble. Some batches are much harder than the rest,
  so the 95 % quantile of the differences is asked as well as their median, and the larger answer
  taken. Neighbours may also share their noise (batches drawn from one stretch of text, a slow
  wander of the optimizer): then their differences show little of it, and the median of a window
  wanders as its points do. So differences over longer and longer lags are asked too, and levels are
  held against how much levels of that width were seen to wander.
- **Excursion**: a stretch in which the level exceeds the best wide level before it by more than a
  threshold; it ends when the level is back within half of that.

Curves may be sparse (one point every ten steps): widths are in points, answers in steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.spec import CurvePoint

Floats = NDArray[np.float64]

MIN_POINTS = 20
"""With fewer there is no telling a trend from noise."""
MIN_SETTLED = 12
"""Points that are never counted to the settling."""
MIN_FOR_TAILS = 60
"""Points; with fewer a tail cannot be told from a single spike."""
TAILS_MOST = 2.5
"""How much larger the tails may make the noise; more is not hard batches but spikes."""
FEWEST_LAGS = 5
"""A lag is asked about where the curve is so many times as long."""
NOISE_MOST_SHARE = 0.2
"""The most that can be noise, as a share of the first loss. The mean over a batch of even 64 tokens
varies less; what varies more, from the settling on, is in trouble already, and that must not pass
for noise."""
SHORT_OF = ((60, 3), (200, 5), (math.inf, 7))
"""Points of a short level, for curves of fewer points than the first number: more of them tell
hard batches from a spike, which on a sparse curve may last a few points only."""
WIDE_SHARE = 1 / 20
WIDE_MIN, WIDE_MAX = 5, 101
SETTLING_SHARE = 0.05
"""Or the warm-up, where that is longer: the first steps jump about in sound runs too."""

_MEDIAN_SD = math.sqrt(math.pi / 2)
"""The standard error of a median of n normal values is this times sigma / sqrt(n)."""
_MEDIAN_DEVIATION, _OUTER_DEVIATION = 0.6745, 1.9600
"""The median and the 95 % quantile of the absolute value of a standard normal variable."""


@dataclass(frozen=True, slots=True)
class Excursion:
    """A stretch in which the level stays above the best before it."""

    start: int
    """Index of its first point."""
    end: int | None
    """Index of the point about which the level is back; None where it is not."""
    best: float
    """The level it rose from."""
    peak: float
    """The highest level in it."""


class Curve:
    """A learning curve prepared for the detectors. It has MIN_POINTS points or more."""

    def __init__(self, points: Sequence[CurvePoint], *, steps: int, warmup: int) -> None:
        """
        :param points: in steps ascending.
        :param steps: of the schedule, whether or not the run reached its end.
        :param warmup: steps of it in which the learning rate still rises.
        """
        if len(points) < MIN_POINTS:
            raise ValueError(f"a curve of {len(points)} points cannot be judged")
        self.step = np.array([point.step for point in points])
        self.loss = np.array([point.loss for point in points])
        self.knows_rate = points[0].lr is not None
        """Of a command's curve nothing is known but steps and losses, in whatever unit."""
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
        """What follows a loss in a sentence; nothing where its unit is not known."""
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
    """Sd of one point about the trend; see the head of this module.

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
    """Sd of one value about the trend where neighbours share noise: the largest that second
    differences over lags from 2 to twice ``longest`` points show; a straight trend drops out of
    them."""
    largest, lag = 0.0, 2
    while lag <= 2 * longest and len(x) >= FEWEST_LAGS * lag:
        second = x[: -2 * lag] - 2 * x[lag:-lag] + x[2 * lag :]
        sd = float(np.median(np.abs(second))) / _MEDIAN_DEVIATION / math.sqrt(6)
        largest, lag = max(largest, sd), 2 * lag
    return largest


def level_se(x: Floats, sigma: float, points: int, wide: int) -> float:
    """The standard error of a level of ``points`` points of ``x``: what independent ones of sd
    ``sigma`` would have, or what levels were seen to wander by before any trouble, where that is
    more."""
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
    """Stretches of ``x``, a series over the curve's points or the last of them, in which the level
    of ``width`` points exceeds the best wide level that ended before, or ``best_at_first``, by more
    than ``threshold``."""
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
            # The median passed the threshold with the point in the middle of its window.
            start, peak = index + width // 2, -math.inf
        peak = max(peak, float(levels[index]))
        if rise <= threshold / 2:
            yield Excursion(start, index + width // 2, float(best[index]), peak)
            start = None
    if start is not None:
        # The last points may have left it, though a wide level does not show that yet.
        over = float(np.median(x[-curve.short :])) <= best[-1] + threshold / 2
        yield Excursion(start, len(x) - 1 if over else None, float(best[-1]), peak)


def _levels(x: Floats, width: int) -> Floats:
    """[n - width + 1]: medians of ``width`` neighbouring points; the i-th begins at point i."""
    windows = np.lib.stride_tricks.sliding_window_view(x, width)
    medians: Floats = np.median(windows, axis=1)
    return medians
