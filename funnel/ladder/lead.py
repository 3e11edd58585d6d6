"""Estimate whether the winner's lead over the baseline grows, holds or shrinks as both grow.

The lead at one size and length is the baseline's bits per byte minus the winner's, over their
common seeds. A line in the logarithm of the training compute is fitted to it, weighted by seeds.
Compute is the axis because parameters and tokens grow together on a ladder, as they will on the way
to the target.

The uncertainty is the scatter of the points about the line from any cause: luck, shapes that had to
be rounded, rates that fit one rung better than another. So the slope's interval is Student's t with
two degrees of freedom fewer than there are points. A single seed's luck is part of that scatter; no
noise of short runs is assumed.

A lead holds only if a decline would have been visible: the slope's interval must exclude a loss or
gain of HOLDS_SHARE of the lead per tenfold of compute.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegative, Positive, PositiveInt
from trajectory.statistics.intervals import student_t

LEVEL = 0.95
POWER = 0.80
FEWEST_POINTS = 4
HOLDS_SHARE = 0.25

Trend: TypeAlias = Literal["grows", "holds", "shrinks", "unclear"]


class LeadPoint(Frozen):
    """Both recipes at one size and length."""

    rung: PositiveInt
    params: Positive
    tokens: Positive
    flops: Positive
    """FLOPs of the winner's training."""
    lead_bpb: Finite
    """Baseline minus winner, the mean over the common seeds; positive if the winner is better."""
    seeds: PositiveInt


class Lead(Frozen):
    """The lead along the ladder."""

    points: tuple[LeadPoint, ...]
    """Points by ascending compute."""
    at_largest_bpb: Finite
    """The line's value at the largest point."""
    at_largest_low: Finite
    at_largest_high: Finite
    per_tenfold_bpb: Finite
    """Change of the lead with every tenfold of compute; negative if it shrinks."""
    per_tenfold_low: Finite
    per_tenfold_high: Finite
    stderr: NonNegative
    """Standard error of ``per_tenfold_bpb``."""
    dof: PositiveInt
    scatter_bpb: NonNegative
    """Sd of a point with one seed about the line."""
    mean_log10_flops: Finite
    spread: Positive
    """Weighted sum of squares of the points' log10 FLOPs about their mean."""
    weight: Positive
    """Sum of the points' weights."""

    @property
    def trend(self) -> Trend:
        """The trend that the slope's interval supports."""
        if self.per_tenfold_low > 0:
            return "grows"
        if self.per_tenfold_high < 0:
            return "shrinks"
        room = HOLDS_SHARE * self.at_largest_bpb
        return "holds" if max(-self.per_tenfold_low, self.per_tenfold_high) < room else "unclear"

    @property
    def stands(self) -> bool:
        """Whether there is a lead at the largest point, with 95 % confidence."""
        return self.at_largest_low > 0

    @property
    def visible_bpb(self) -> float:
        """The decline per tenfold of compute that four of five ladders like this one would have
        detected: the power.

        It approximates the noncentral t, with the observed scatter corrected for the median of its
        distribution (Wilson and Hilferty 1931).
        """
        seen: float = (1 - 2 / (9 * self.dof)) ** 1.5
        t = student_t((1 + LEVEL) / 2, self.dof) + student_t(POWER, self.dof)
        return t * self.stderr / seen

    @property
    def visible_share(self) -> float | None:
        """The same as a share of the lead at the largest point; None if there is no lead there."""
        return self.visible_bpb / self.at_largest_bpb if self.at_largest_bpb > 0 else None

    def at(self, flops: float) -> tuple[float, float, float]:
        """Return the low, middle and high lead at this compute, with a 95 % interval, if the line
        continues."""
        largest = math.log10(self.points[-1].flops)
        middle = self.at_largest_bpb + self.per_tenfold_bpb * (math.log10(flops) - largest)
        off = math.log10(flops) - self.mean_log10_flops
        sd = self.scatter_bpb * math.sqrt(1 / self.weight + off**2 / self.spread)
        half = student_t((1 + LEVEL) / 2, self.dof) * sd
        return middle - half, middle, middle + half


def fit_lead(points: Sequence[LeadPoint]) -> Lead | None:
    """Fit the lead's line; return None if there are too few points, or all have about the same
    size."""
    ordered = sorted(points, key=lambda point: point.flops)
    if len(ordered) < FEWEST_POINTS:
        return None
    x_N = np.log10([point.flops for point in ordered])
    y_N = np.array([point.lead_bpb for point in ordered])
    w_N = np.array([float(point.seeds) for point in ordered])
    mean_x, mean_y = np.average(x_N, weights=w_N), np.average(y_N, weights=w_N)
    spread = float(w_N @ (x_N - mean_x) ** 2)
    if spread < 1e-6:
        return None
    slope = float(w_N @ ((x_N - mean_x) * (y_N - mean_y))) / spread
    residual_N = y_N - mean_y - slope * (x_N - mean_x)
    dof = len(ordered) - 2
    scatter = math.sqrt(float(w_N @ residual_N**2) / dof)
    t = student_t((1 + LEVEL) / 2, dof)
    stderr = scatter / math.sqrt(spread)
    off = float(x_N[-1] - mean_x)
    largest = float(mean_y) + slope * off
    half = t * scatter * math.sqrt(1 / float(w_N.sum()) + off**2 / spread)
    return Lead(
        points=tuple(ordered),
        at_largest_bpb=largest,
        at_largest_low=largest - half,
        at_largest_high=largest + half,
        per_tenfold_bpb=slope,
        per_tenfold_low=slope - t * stderr,
        per_tenfold_high=slope + t * stderr,
        stderr=stderr,
        dof=dof,
        scatter_bpb=scatter,
        mean_log10_flops=float(mean_x),
        spread=spread,
        weight=float(w_N.sum()),
    )
