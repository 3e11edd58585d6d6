"""Rank correlations with intervals from resampled configs, and differences of two of them.

Of n configs n are drawn with replacement, :data:`RESAMPLES` times, the same draws for every way to
score them; an interval is from the 2.5 to the 97.5 % quantile of what the draws give (Efron 1979).
A difference of two ways on the same draws keeps what they share, which makes it surer than two
intervals beside each other say. docs/fidelity.md says how often the intervals hold.
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
    """Draws of n configs, and what correlations come to over them.

    A draw is how often it has each config. Both correlations are sums over pairs of configs of the
    signs of their scores' differences, so a draw only weighs the pairs: products of matrices.
    """

    def __init__(self, n: int, resamples: int = RESAMPLES, seed: int = 0) -> None:
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
        self.counts_DN: Floats = np.concatenate([np.ones((1, n)), drawn.astype(np.float64)])
        """The configs as they are first."""

    def spearman(self, x: Sequence[float], y: Sequence[float]) -> Floats:
        """Rho of the configs themselves, then of every draw; NaN where one of the two is constant.

        :param y: either may be infinite, for the last of all.
        """
        # A rank less the mean rank is half the sum of a score's signs against all others.
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
        """Tau-b likewise."""
        signs_x, signs_y = _signs(x), _signs(y)
        products = (signs_x * signs_y, signs_x**2, signs_y**2)
        return _ratio(*(((self.counts_DN @ one) * self.counts_DN).sum(axis=1) for one in products))


def interval(values: Floats, at_once: int = 1) -> Correlation | None:
    """The first value with the 95 % interval that the others make; None where it is no number.

    :param at_once: of so many that are to hold together (Bonferroni).
    """
    drawn = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or not len(drawn):
        return None
    tail = 0.025 / at_once
    lo, hi = np.quantile(drawn, (tail, 1 - tail))
    value = float(values[0])
    return Correlation(value=value, lo=min(float(lo), value), hi=max(float(hi), value))


def _signs(scores: Sequence[float]) -> Floats:
    """Of all pairs: -1, 0 or 1, ``[n, n]``. Compared, for infinities have no difference."""
    scores_N = np.asarray(scores, dtype=np.float64)
    above = scores_N[:, None] > scores_N[None, :]
    signs: Floats = above.astype(np.float64) - above.T
    return signs


def _ratio(both: Floats, x: Floats, y: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.clip(both / np.sqrt(x * y), -1, 1)
    return found
