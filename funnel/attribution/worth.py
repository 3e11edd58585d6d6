"""Estimate the worth of changes, with valid intervals.

On a seed s, y(c, s) is the score of config c. With W the winner, B the baseline and W\\k the winner
without change k:

    gain       B - W
    worth of k W\\k - W, so that above zero the change helps where all the others are
    remainder  gain - sum of the worths = B + (K - 1) W - sum of W\\k, over the K changes measured

The remainder belongs to no change alone: it holds interactions, and changes that could not be
undone. All three are contrasts whose coefficients add up to zero, so what a seed does to all
configs cancels. Each is measured per seed, over the seeds that all its configs have.

The interval of its mean is Student's, with the moderated variance of Smyth 2004 (Statistical
Applications in Genetics and Molecular Biology 3). One part of that variance is the contrast's own,
with n - 1 degrees of freedom. The other is the scatter of all configs about seeds and configs
(two-way, pooled), applied to the coefficients. It weighs :data:`PRIOR_DOF` degrees of freedom, or
as many as it has if those are fewer. A few seeds' own variance alone would make intervals several
times too wide. The pooled one alone would make them too narrow for a config that is noisier than
the rest. ``tests/funnel/attribution`` measures the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegativeInt
from trajectory.statistics.intervals import student_t

PRIOR_DOF = 4
"""Largest weight of the pooled variance, in degrees of freedom."""
CONFIDENCE = 0.95

Scores = Mapping[str, Mapping[int, float]]
"""Bits per byte by config_hash and seed."""


class EstimatedWorth(Frozen):
    """A difference in bits per byte, with its interval."""

    value: Finite
    low: Finite | None = None
    high: Finite | None = None
    """Upper end of the 95 % interval; both ends are None for a single seed of a single pair."""
    seeds: NonNegativeInt
    is_exact: bool = False
    """Whether all runs on both sides were identical to the last bit, so that the change does
    nothing."""

    @property
    def helps(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low is not None and self.low > 0

    @property
    def harms(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high is not None and self.high < 0


def estimate_text(estimate: EstimatedWorth | None) -> str:
    """Format an estimate: ``+0.0123 (+0.0041 … +0.0205)``."""
    if estimate is None:
        return "not measured"
    if estimate.is_exact:
        return "0, exactly"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:+.4f} (one seed: no interval)"
    return f"{estimate.value:+.4f} ({estimate.low:+.4f} … {estimate.high:+.4f})"


@dataclass(frozen=True, slots=True)
class Scatter:
    """Residual scatter of the scores after each config's and each seed's effect is removed."""

    variance: float
    dof: int

    @classmethod
    def of(cls, scores: Scores) -> Scatter | None:
        """Estimate the scatter; return None if there are too few runs."""
        cells = [(c, s, y) for c, own in enumerate(scores.values()) for s, y in own.items()]
        seeds = sorted({seed for _, seed, _ in cells})
        design = np.zeros((len(cells), len(scores) + len(seeds)))
        for line, (config, seed, _) in enumerate(cells):
            design[line, config] = design[line, len(scores) + seeds.index(seed)] = 1.0
        y = np.array([score for _, _, score in cells])
        if not len(y):
            return None
        fitted, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
        dof = len(y) - int(rank)
        if dof < 1:
            return None
        residual = y - design @ fitted
        return cls(float(residual @ residual) / dof, dof)


def contrast(
    scores: Scores, weights: Sequence[tuple[str, float]], scatter: Scatter | None
) -> EstimatedWorth | None:
    """Return the weighted sum of these configs' scores, whose weights add up to zero; None if no
    seed has all of them.

    :param weights: config_hash and weight; a hash may occur twice.
    """
    summed: dict[str, float] = {}
    for name, weight in weights:
        summed[name] = summed.get(name, 0.0) + weight
    summed = {name: weight for name, weight in summed.items() if weight}
    if not summed:
        return EstimatedWorth(value=0.0, low=0.0, high=0.0, seeds=0, is_exact=True)
    columns = [scores.get(name, {}) for name in summed]
    common = sorted(set.intersection(*(set(column) for column in columns)))
    if not common:
        return None
    each = [
        math.fsum(w * column[seed] for w, column in zip(summed.values(), columns, strict=True))
        for seed in common
    ]
    n, mean = len(each), fmean(each)
    if len(summed) == 2 and not any(each):
        return EstimatedWorth(value=0.0, low=0.0, high=0.0, seeds=n, is_exact=True)
    squares = math.fsum((one - mean) ** 2 for one in each)
    prior = min(PRIOR_DOF, scatter.dof) if scatter else 0
    dof = prior + n - 1
    if dof < 1:
        return EstimatedWorth(value=mean, seeds=n)
    pooled = scatter.variance * math.fsum(w * w for w in summed.values()) if scatter else 0.0
    half = student_t((1 + CONFIDENCE) / 2, dof) * math.sqrt((prior * pooled + squares) / dof / n)
    return EstimatedWorth(value=mean, low=mean - half, high=mean + half, seeds=n)


class Worths(Frozen):
    """The gain and its parts."""

    gain: EstimatedWorth | None
    changes: tuple[EstimatedWorth | None, ...]
    """Worths in the order requested; None for a change that was not measured."""
    remainder: EstimatedWorth | None


def worths(scores: Scores, winner: str, baseline: str, without: Sequence[str | None]) -> Worths:
    """Return the worth of the changes whose undoing gives the configs ``without``.

    :param without: a config_hash for each change; None if it could not be undone alone.
    """
    scatter = Scatter.of(scores)
    changes = tuple(
        None if name is None else contrast(scores, [(name, 1.0), (winner, -1.0)], scatter)
        for name in without
    )
    measured = [name for name, worth in zip(without, changes, strict=True) if worth and name]
    left = [(baseline, 1.0), (winner, len(measured) - 1.0)]
    left += [(name, -1.0) for name in measured]
    return Worths(
        gain=contrast(scores, [(baseline, 1.0), (winner, -1.0)], scatter),
        changes=changes,
        remainder=contrast(scores, left, scatter),
    )
