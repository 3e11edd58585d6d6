"""Compare proxy metrics with long runs of the same configs.

Each metric's scores are correlated by rank with the long scores, over the same configs
(:mod:`trajectory.statistics.fidelity`). A non-finite loss ranks last. The choice of configs
determines what a correlation means (:mod:`trajectory.statistics.fidelity`). Here the configs are
spread over the menu and near its good ones, so the correlation describes a search's whole range.
The order among the best tenth (at least five configs) is harder to determine and matters more. Its
correlation is reported separately; its interval is wide because these configs are few.

**Fitted** is a ridge regression of the long score on several metrics at once. Each config is
predicted by a fit to the others, which also chooses the ridge strength (Allen's PRESS,
Technometrics 16, 1974).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trajectory.calibrated import Correlation, ProxyMetric
from trajectory.statistics.fidelity import MIN_CONFIGS, Resampled, fidelity, interval

BEST_SHARE = 0.1
FEWEST = 8
"""Fewest configs from which a correlation is computed."""
SHRINKING = (0.1, 1.0, 10.0, 100.0)
"""Ridge strengths, for standardized scores; the fit chooses one without the predicted config."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of one proxy metric, lower is better; infinite if the loss was not finite."""

    scores: Sequence[float]
    """One score per config, in the same order for every metric."""
    cost: float
    """Cost relative to the campaign's own metric."""


def compared(scored: Mapping[str, Scored], long: Sequence[float]) -> tuple[ProxyMetric, ...]:
    """Compare each metric with the long scores, leaving out metrics that score all configs equally.

    :param scored: scores by metric; the first is the campaign's own.
    :param long: long scores of the same configs, at least FEWEST of them.
    """
    draws = Resampled(len(long))
    best = best_of(long)
    own_name = next(iter(scored))
    own = draws.spearman(scored[own_name].scores, long)
    found = []
    for name, metric in scored.items():
        rhos = draws.spearman(metric.scores, long)
        spearman, kendall = interval(rhos), interval(draws.kendall(metric.scores, long))
        if spearman is None or kendall is None:
            continue
        others = len(scored) - 1
        gain = None if name == own_name else interval(rhos - own)
        surely = None if name == own_name else interval(rhos - own, others)
        first = min(range(len(long)), key=lambda config: metric.scores[config])
        few = fidelity([metric.scores[config] for config in best], [long[c] for c in best])
        found.append(
            ProxyMetric(
                name=name,
                cost=metric.cost,
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


def times_to_gain(
    curve: Sequence[tuple[float, Correlation]], by: float = 0.05
) -> list[tuple[float, float]]:
    """Return pairs of a correlation and the multiple of the budget that reaches it.

    The correlations start at that of the budget itself and rise in steps of ``by`` up to the last
    one measured. Between two measured lengths, the correlation is interpolated linearly in the
    logarithm of the length. If a longer run ranked no better, the curve stays level.
    """
    if not any(times == 1 for times, _ in curve):
        return []
    known = [(times, found.value) for times, found in curve if times >= 1]
    risen = list(accumulate((value for _, value in known), max))
    logs = [math.log(times) for times, _ in known]
    found = []
    for number in range(1, 1 + int((risen[-1] - risen[0]) / by + 1e-9)):
        wanted = risen[0] + number * by
        at = next(place for place, value in enumerate(risen) if value >= wanted - 1e-12)
        share = (wanted - risen[at - 1]) / (risen[at] - risen[at - 1])
        found.append((wanted, math.exp(logs[at - 1] + share * (logs[at] - logs[at - 1]))))
    return found


def extrapolated(points: Sequence[tuple[int, float]], steps: int) -> float:
    """Extrapolate a score to ``steps`` by a line over the logarithm of the step.

    :param points: steps and scores, at least two.
    """
    if not all(math.isfinite(score) for _, score in points):
        return math.inf
    slope, level = np.polyfit([math.log(step) for step, _ in points], [s for _, s in points], 1)
    return float(level + slope * math.log(steps))


def fitted(metrics: Sequence[Sequence[float]], long: Sequence[float]) -> list[float]:
    """Predict each config's long score from a fit to all others, as a deviation from the mean.

    The mean of the other scores is biased away from the score left out. A fit that learned nothing
    would therefore reverse the order of the configs. So each fit contributes only its slopes, and
    they are applied to the deviation from the center of all configs.
    """
    x = np.array([_bounded(metric) for metric in metrics]).T
    y, centre = np.array(_bounded(long)), x.mean(axis=0)
    predicted = []
    for config in range(len(y)):
        others = np.arange(len(y)) != config
        predicted.append(float((x[config] - centre) @ _slopes(x[others], y[others])))
    return predicted


def _slopes(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slopes of a ridge regression, per unit of each unscaled score."""
    centre, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale == 0] = 1.0
    z, mean = (x - centre) / scale, y.mean()
    u, s, vt = np.linalg.svd(z, full_matrices=False)
    uy = u.T @ (y - mean)

    def left_out(strength: float) -> float:
        """Return the mean square error when each config is predicted by the others."""
        shrunk = s**2 / (s**2 + strength)
        hat = (u**2 * shrunk).sum(axis=1) + 1 / len(y)
        residual = y - mean - u @ (shrunk * uy)
        return float(np.mean((residual / (1 - hat)) ** 2))

    strength = min(SHRINKING, key=left_out)
    weights = vt.T @ (s / (s**2 + strength) * uy)
    slopes: NDArray[np.float64] = weights / scale
    return slopes


def _bounded(scores: Sequence[float]) -> list[float]:
    """Replace infinite scores by a value slightly worse than the worst finite one."""
    known = [score for score in scores if math.isfinite(score)] or [0.0]
    last = max(known) + 0.1 * (max(known) - min(known))
    return [score if math.isfinite(score) else last for score in scores]
