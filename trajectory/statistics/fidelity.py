"""How well the ranking of short runs predicts the ranking of long ones: rank correlation.

Spearman's rho is the correlation of the ranks, ties sharing their mean rank. Kendall's tau-b counts
pairs: those in the same order less those in the opposite one, over all pairs with no tie in either
score (Kendall 1945). Over the pairs with no tie at all it is Goodman and Kruskal's gamma (1954),
the same where nothing ties: of two such configs the better at first is the better in the end with
probability ``(1 + gamma) / 2``.

Intervals are Fisher's: ``tanh(atanh(r) ± z sd)``, with ``sd² = (1 + r²/2) / (n - 3)`` for rho and
``sd² = 0.437 / (n - 4)`` for tau (Bonett and Wright, Psychometrika 65, 2000; the latter after
Fieller, Hartley and Pearson, Biometrika 44, 1957). They are approximations that hold from about
ten configs on; with fewer the interval is so wide that little can be claimed anyway. Gamma has that
of as many configs as have so many pairs. A perfect
order is taken as half a swap of neighbours short of perfect, a continuity correction.

Which configs enter decides what the number means. A sample evenly spread over the ranking estimates
the correlation over the whole ranking. The best few alone span so little that noise decides their
order, and their correlation is lower than the ranking's (range restriction); put together with a
spread sample they would pull it down by counting one end of the ranking several times over. So the
spread configs count, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from autoresearch.values import Frozen, PositiveInt
from trajectory.calibrated import Correlation

MIN_CONFIGS = 5
"""The fewest for which the intervals are defined."""
CONFIDENCE = 0.95


class Fidelity(Frozen):
    """How far the order of short runs is the order of long ones."""

    n: PositiveInt
    """Configs."""
    spearman: Correlation
    kendall: Correlation
    gamma: Correlation
    """Kendall's count over the pairs with no tie alone (Goodman and Kruskal 1954)."""

    @property
    def concordance(self) -> Correlation:
        """The probability that of two configs that do not tie the better at first is the better in
        the end."""
        of = self.gamma
        return Correlation(value=(1 + of.value) / 2, lo=(1 + of.lo) / 2, hi=(1 + of.hi) / 2)


def fidelity(short: Sequence[float], long: Sequence[float]) -> Fidelity | None:
    """How the same configs' short and long scores agree; None where no correlation can be told.

    :param long: infinite where the long run failed by the config's own fault: behind all others.

    None for fewer than MIN_CONFIGS, or where all scores of one kind are equal.
    """
    n = len(short)
    if n < MIN_CONFIGS or len(set(short)) < 2 or len(set(long)) < 2:
        return None
    rho, tau = spearman(short, long), kendall(short, long)
    return Fidelity(
        n=n,
        spearman=_interval(rho, math.sqrt((1 + rho**2 / 2) / (n - 3)), 12 / (n**3 - n)),
        kendall=_interval(tau, math.sqrt(0.437 / (n - 4)), 4 / (n**2 - n)),
        gamma=_gamma(short, long),
    )


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rho of two equally long sequences, neither of them constant."""
    ranks_x, ranks_y = mid_ranks(x), mid_ranks(y)
    return float(np.clip(np.corrcoef(ranks_x, ranks_y)[0, 1], -1.0, 1.0))


def kendall(x: Sequence[float], y: Sequence[float]) -> float:
    """Kendall's tau-b of two equally long sequences, neither of them constant."""
    # Of ranks, because the difference of two infinities is no number.
    sign_x, sign_y = (np.sign(np.subtract.outer(r, r)) for r in (mid_ranks(x), mid_ranks(y)))
    pairs = math.sqrt(float((sign_x**2).sum()) * float((sign_y**2).sum()))
    return float(np.clip(float((sign_x * sign_y).sum()) / pairs, -1.0, 1.0))


def _gamma(x: Sequence[float], y: Sequence[float]) -> Correlation:
    signs_x, signs_y = (np.sign(np.subtract.outer(r, r)) for r in (mid_ranks(x), mid_ranks(y)))
    told = float((signs_x * signs_y != 0).sum()) / 2
    value = float((signs_x * signs_y).sum()) / 2 / told if told else 0.0
    n = (1 + math.sqrt(1 + 8 * told)) / 2
    return _interval(value, math.sqrt(0.437 / max(n - 4, 0.5)), 2 / max(told, 1))


def mid_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks from 1, those of equal values their mean."""
    x = np.asarray(values, dtype=np.float64)
    below = (x[None, :] < x[:, None]).sum(axis=1)
    equal = (x[None, :] == x[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks


def _interval(r: float, sd: float, step: float) -> Correlation:
    """
    :param step: by how much one swap of neighbours changes the coefficient.
    """
    inside = max(-1 + step / 2, min(1 - step / 2, r))  # atanh of a perfect order has no value
    centre = math.atanh(inside)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    lo, hi = math.tanh(centre - z * sd), math.tanh(centre + z * sd)
    return Correlation(value=r, lo=min(lo, r), hi=max(hi, r))
