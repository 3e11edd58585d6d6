"""Compute rank correlations with bootstrap intervals over configs, and differences of two of them.

From n configs, n are drawn with replacement, :data:`RESAMPLES` times, with the same draws for every
proxy metric. An interval spans the 2.5 to 97.5 % quantiles over the draws (Efron 1979). The
difference of two metrics on the same draws cancels what they share. It is more precise than a
comparison of two separate intervals. docs/fidelity.md says how often the intervals hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trajectory.calibrated import Correlation

RESAMPLES = 4000

Floats: TypeAlias = NDArray[np.float64]


class Resampled:
    """Draws of n configs, and correlations over them.

    A draw counts how often it holds each config. Both correlations are sums over pairs of configs
    of the signs of their score differences. So a draw only weights the pairs: the computation is a
    product of matrices.
    """

    def __init__(self, n: int, resamples: int = RESAMPLES, seed: int = 0) -> None:
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
        self.counts_DN: Floats = np.concatenate([np.ones((1, n)), drawn.astype(np.float64)])
        """Counts by draw and config; the first row is the configs themselves."""

    def spearman(self, x: Sequence[float], y: Sequence[float]) -> Floats:
        """Return rho of the configs themselves, then of every draw; NaN if one of the two is
        constant.

        :param y: either may hold infinite scores, which rank last.
        """
        # A centered rank is half the sum of the signs of a score against all others.
        rank_x_DN, rank_y_DN = self.counts_DN @ _signs(x).T, self.counts_DN @ _signs(y).T
        return _ratio(
            *(
                (self.counts_DN * one * other).sum(axis=1)
                for one, other in (
                    (rank_x_DN, rank_y_DN),
                    (rank_x_DN, rank_x_DN),
                    (rank_y_DN, rank_y_DN),
                )
            )
        )

    def kendall(self, x: Sequence[float], y: Sequence[float]) -> Floats:
        """Return tau-b in the same order as :meth:`spearman`."""
        signs_x, signs_y = _signs(x), _signs(y)
        products = (signs_x * signs_y, signs_x**2, signs_y**2)
        return _ratio(*(((self.counts_DN @ one) * self.counts_DN).sum(axis=1) for one in products))


def interval(values: Floats, at_once: int = 1) -> Correlation | None:
    """Return the first value with the 95 % interval of the others; None if it is not finite.

    :param at_once: number of intervals that must hold together (Bonferroni).
    """
    drawn = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or not len(drawn):
        return None
    tail = 0.025 / at_once
    lo, hi = np.quantile(drawn, (tail, 1 - tail))
    value = float(values[0])
    return Correlation(value=value, lo=min(float(lo), value), hi=max(float(hi), value))


def _signs(scores: Sequence[float]) -> Floats:
    """Return the sign of every pair's difference, -1, 0 or 1, ``[n, n]``.

    It compares scores instead of subtracting them, because infinities have no difference.
    """
    scores_N = np.asarray(scores, dtype=np.float64)
    above = scores_N[:, None] > scores_N[None, :]
    signs: Floats = above.astype(np.float64) - above.T
    return signs


def _ratio(both: Floats, x: Floats, y: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.clip(both / np.sqrt(x * y), -1, 1)
    return found
