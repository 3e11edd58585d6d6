"""Rank correlations with intervals from resampled configs, and differences of two of them.

Of n configs n are drawn with replacement, :data:`RESAMPLES` times, the same draws for every way to
score them; an interval is from the 2.5 to the 97.5 % quantile of what the draws give (Efron 1979).
A difference of two ways on the same draws keeps what they share, which makes it surer than two
intervals beside each other say. How often the intervals hold is measured in bench/fidelity.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trajectory.calibrated import Correlation

RESAMPLES = 4000
_CHUNK = 100
"""Resamples at a time: n² comparisons each."""

Floats: TypeAlias = NDArray[np.float64]


class Resampled:
    """Draws of n configs, and what correlations come to over them."""

    def __init__(self, n: int, resamples: int = RESAMPLES, seed: int = 0) -> None:
        drawn = np.random.default_rng(seed).integers(0, n, size=(resamples, n))
        self._draws = np.concatenate([np.arange(n)[None, :], drawn])
        """The configs as they are first."""

    def spearman(self, x: Sequence[float], y: Sequence[float]) -> Floats:
        """Rho of the configs themselves, then of every draw; NaN where one of the two is constant.

        :param y: either may be infinite, for the last of all.
        """
        return self._over(x, y, _rhos)

    def kendall(self, x: Sequence[float], y: Sequence[float]) -> Floats:
        """Tau-b likewise."""
        return self._over(x, y, _taus)

    def _over(
        self, x: Sequence[float], y: Sequence[float], of: Callable[[Floats, Floats], Floats]
    ) -> Floats:
        xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        parts = np.array_split(self._draws, max(1, len(self._draws) // _CHUNK))
        return np.concatenate([of(_signs(xs[part]), _signs(ys[part])) for part in parts])


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


def _signs(scores_DN: Floats) -> Floats:
    """Of all pairs: -1, 0 or 1, ``[draws, n, n]``. Compared, for infinities have no difference."""
    above = scores_DN[:, :, None] > scores_DN[:, None, :]
    signs: Floats = above.astype(np.float64) - above.transpose(0, 2, 1)
    return signs


def _rhos(x_DNN: Floats, y_DNN: Floats) -> Floats:
    # A rank less the mean rank is half the sum of a score's signs against all others.
    return _cosines(x_DNN.sum(axis=2), y_DNN.sum(axis=2))


def _taus(x_DNN: Floats, y_DNN: Floats) -> Floats:
    return _cosines(x_DNN.reshape(len(x_DNN), -1), y_DNN.reshape(len(y_DNN), -1))


def _cosines(x_DK: Floats, y_DK: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (x_DK * y_DK).sum(axis=1) / np.sqrt(
            (x_DK**2).sum(axis=1) * (y_DK**2).sum(axis=1)
        )
    return found
