"""Compare proxy metrics with long runs of the same configs.

Each metric's scores are correlated by rank with the long scores, over the same configs
(:mod:`trajectory.statistics.fidelity`). A non-finite loss ranks last. The choice of configs
determines what a correlation means (:mod:`trajectory.statistics.fidelity`). Here the configs are
spread over the menu and near its good ones, so the correlation describes a search's whole range.
The order among the best tenth (at least five configs) is harder to determine and matters more. Its
correlation is reported separately; its interval is wide because these configs are few.
"""

import math
from collections.abc import Mapping, Sequence

from trajectory.calibrated import Correlation, ProxyMetric
from trajectory.statistics.fidelity import MIN_CONFIGS, Resampled, fidelity, interval

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
