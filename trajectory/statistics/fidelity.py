"""Measure by rank correlation how well the ranking of short runs predicts that of long ones.

Spearman's rho is the correlation of the ranks; ties share their mean rank. Kendall's tau-b counts
pairs: those in the same order minus those in the opposite one, over all pairs with no tie in either
score (Kendall 1945). Over the pairs with no tie at all it is Goodman and Kruskal's gamma (1954);
without ties, the two are equal. If two such configs are drawn, the one that is better at first is
better in the end with probability ``(1 + gamma) / 2``.

Intervals of :func:`fidelity` are Fisher's: ``tanh(atanh(r) ± z sd)``, with
``sd² = (1 + r²/2) / (n - 3)`` for rho and ``sd² = 0.437 / (n - 4)`` for tau (Bonett and Wright,
Psychometrika 65, 2000; the latter after Fieller, Hartley and Pearson, Biometrika 44, 1957). These
approximations hold from about ten configs on; with fewer, the interval is so wide that little can
be concluded anyway. Gamma's interval uses the number of configs that would give as many pairs. A
perfect order is treated as half a swap of neighbors short of perfect, a continuity correction.

The choice of configs determines what the number means. A sample spread evenly over the ranking
estimates the correlation over the whole ranking. The best few alone differ so little that noise
determines their order, so their correlation is lower (range restriction). Added to a spread sample,
they would lower its correlation, because one end of the ranking would count several times. So only
the spread configs count.

:class:`Resampled` draws n configs with replacement from n, :data:`RESAMPLES` times, with the same
draws for every proxy metric. Its interval spans the 2.5 to 97.5 % quantiles over the draws (Efron
1979). The difference of two metrics on the same draws cancels what they share. It is more precise
than a comparison of two separate intervals. docs/fidelity.md says how often the intervals hold.

:func:`compared` compares proxy metrics with long runs of the same configs, for a calibration. A
non-finite loss ranks last. A calibration's configs are spread over the menu and near its good ones,
so the correlation describes a search's whole range. The order among the best tenth (at least five
configs) is harder to determine and matters more. Its correlation is reported separately; its
interval is wide because these configs are few.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoresearch.values import Frozen, PositiveInt
from trajectory.calibrated import Correlation, ProxyMetric

MIN_CONFIGS = 5
"""Fewest configs for which the intervals are defined."""
CONFIDENCE = 0.95


class Fidelity(Frozen):
    """Agreement between the order of short runs and the order of long ones."""

    n: PositiveInt
    """Number of configs."""
    spearman: Correlation
    kendall: Correlation
    gamma: Correlation
    """Kendall's count over only the pairs without ties (Goodman and Kruskal 1954)."""

    @property
    def concordance(self) -> Correlation:
        """Probability that, of two configs without a tie, the better at first is the better in the
        end."""
        of = self.gamma
        return Correlation(value=(1 + of.value) / 2, lo=(1 + of.lo) / 2, hi=(1 + of.hi) / 2)


def fidelity(short: Sequence[float], long: Sequence[float]) -> Fidelity | None:
    """Return how well the same configs' short and long scores agree.

    :param long: infinite if the long run failed through the config's own fault; it then ranks last.
    :returns: None for fewer than MIN_CONFIGS configs, or if all scores of one kind are equal.
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
    """Return Spearman's rho of two equally long sequences, neither of them constant."""
    ranks_x, ranks_y = mid_ranks(x), mid_ranks(y)
    return float(np.clip(np.corrcoef(ranks_x, ranks_y)[0, 1], -1.0, 1.0))


def kendall(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Kendall's tau-b of two equally long sequences, neither of them constant."""
    # Use ranks, because the difference of two infinities is NaN.
    sign_x, sign_y = (np.sign(np.subtract.outer(r, r)) for r in (mid_ranks(x), mid_ranks(y)))
    pairs = math.sqrt(float((sign_x**2).sum()) * float((sign_y**2).sum()))
    return float(np.clip(float((sign_x * sign_y).sum()) / pairs, -1.0, 1.0))


def _gamma(x: Sequence[float], y: Sequence[float]) -> Correlation:
    signs_x, signs_y = (np.sign(np.subtract.outer(r, r)) for r in (mid_ranks(x), mid_ranks(y)))
    untied = float((signs_x * signs_y != 0).sum()) / 2
    value = float((signs_x * signs_y).sum()) / 2 / untied if untied else 0.0
    n = (1 + math.sqrt(1 + 8 * untied)) / 2
    return _interval(value, math.sqrt(0.437 / max(n - 4, 0.5)), 2 / max(untied, 1))


def mid_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return ranks from 1; equal values share their mean rank."""
    x = np.asarray(values, dtype=np.float64)
    below = (x[None, :] < x[:, None]).sum(axis=1)
    equal = (x[None, :] == x[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks


def _interval(r: float, sd: float, step: float) -> Correlation:
    """Return a coefficient with its interval.

    :param step: change of the coefficient when two neighbors swap.
    """
    inside = max(-1 + step / 2, min(1 - step / 2, r))  # atanh(1) is infinite
    centre = math.atanh(inside)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    lo, hi = math.tanh(centre - z * sd), math.tanh(centre + z * sd)
    return Correlation(value=r, lo=min(lo, r), hi=max(hi, r))


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


BEST_SHARE = 0.1
FEWEST = 8
"""Fewest configs from which a correlation is computed."""


def compared(
    scored: Mapping[str, Sequence[float]], long: Sequence[float]
) -> tuple[ProxyMetric, ...]:
    """Compare each metric with the long scores, leaving out metrics that score all configs equally.

    :param scored: scores of all configs by metric, the campaign's own first; lower is better, and a
        loss that was not finite is infinite.
    :param long: long scores of the same configs, at least FEWEST of them.
    """
    draws = Resampled(len(long))
    best = best_of(long)
    own_name = next(iter(scored))
    own = draws.spearman(scored[own_name], long)
    found = []
    for name, metric in scored.items():
        rhos = draws.spearman(metric, long)
        spearman, kendall = interval(rhos), interval(draws.kendall(metric, long))
        if spearman is None or kendall is None:
            continue
        others = len(scored) - 1
        gain = None if name == own_name else interval(rhos - own)
        surely = None if name == own_name else interval(rhos - own, others)
        first = min(range(len(long)), key=lambda config: metric[config])
        few = fidelity([metric[config] for config in best], [long[c] for c in best])
        found.append(
            ProxyMetric(
                name=name,
                spearman=spearman,
                kendall=kendall,
                gain=gain,
                surely=surely.lo if surely else None,
                best=few.spearman if few else None,
                forgone_bpb=min(long[first], max(x for x in long if math.isfinite(x))) - min(long),
            )
        )
    return tuple(found)


def best_of(long: Sequence[float]) -> list[int]:
    """Return the best tenth of the configs by their long scores, at least five."""
    count = max(MIN_CONFIGS, round(BEST_SHARE * len(long)))
    return sorted(range(len(long)), key=lambda config: long[config])[:count]


def correlation_of(scores: Sequence[float], long: Sequence[float]) -> Correlation | None:
    """Return Spearman's rho with its bootstrap interval."""
    return interval(Resampled(len(long)).spearman(scores, long))
