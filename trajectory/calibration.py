"""What calibration runs say: each way to measure a config held against its long runs.

Ways are compared over the same configs by rank correlation with the long score
(:mod:`trajectory.statistics.bootstrap`). A loss that was not finite ranks last. Which configs enter
decides what a correlation means (:mod:`trajectory.statistics.fidelity`): here they are spread over
the menu and near its good ones, so it speaks of a search's whole range. Among the best tenth, five
at least, order is harder to tell and matters more: that is stated beside it, with an interval that
is wide because they are few.

**Fitted** is a ridge regression of the long score on several ways at once; each config is predicted
by a fit to the others alone, its strength of shrinking chosen among them as well (Allen's PRESS,
Technometrics 16, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trajectory.calibrated import Correlation, Way
from trajectory.statistics.bootstrap import Resampled, interval
from trajectory.statistics.fidelity import MIN_CONFIGS, fidelity

BEST_SHARE = 0.1
FEWEST = 8
"""Configs, below which a correlation says nothing and nothing is concluded."""
SHRINKING = (0.1, 1.0, 10.0, 100.0)
"""Strengths, of standardised scores: the better of them is chosen without the config predicted."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A way's scores, lower is better; infinite where the loss was not finite."""

    scores: Sequence[float]
    """One a config, in the order of all others."""
    cost: float
    """Over the campaign's own way."""


def ways_of(scored: Mapping[str, Scored], long: Sequence[float]) -> tuple[Way, ...]:
    """Each way against long scores; those that put all configs level are left out.

    :param scored: the campaign's own way first.
    :param long: of the same configs, FEWEST of them at least.
    """
    draws = Resampled(len(long))
    best = best_of(long)
    own_name = next(iter(scored))
    own = draws.spearman(scored[own_name].scores, long)
    found = []
    for name, way in scored.items():
        rhos = draws.spearman(way.scores, long)
        spearman, kendall = interval(rhos), interval(draws.kendall(way.scores, long))
        if spearman is None or kendall is None:
            continue
        others = len(scored) - 1
        gain = None if name == own_name else interval(rhos - own)
        surely = None if name == own_name else interval(rhos - own, others)
        first = min(range(len(long)), key=lambda config: way.scores[config])
        found.append(
            Way(
                name=name,
                cost=way.cost,
                spearman=spearman,
                kendall=kendall,
                gain=gain,
                surely=surely.lo if surely else None,
                best=_among(best, way.scores, long),
                forgone_bpb=min(long[first], max(x for x in long if math.isfinite(x))) - min(long),
            )
        )
    return tuple(found)


def best_of(long: Sequence[float]) -> list[int]:
    """The best tenth of the configs by their long scores, five at least."""
    count = max(MIN_CONFIGS, round(BEST_SHARE * len(long)))
    return sorted(range(len(long)), key=lambda config: long[config])[:count]


def correlation_of(scores: Sequence[float], long: Sequence[float]) -> Correlation | None:
    """Spearman's rho with its bootstrap interval."""
    return interval(Resampled(len(long)).spearman(scores, long))


def _among(
    best: Sequence[int], scores: Sequence[float], long: Sequence[float]
) -> Correlation | None:
    few = fidelity([scores[config] for config in best], [long[config] for config in best])
    return few.spearman if few else None


def times_to_gain(
    curve: Sequence[tuple[float, Correlation]], by: float = 0.05
) -> list[tuple[float, float]]:
    """What each further ``by`` of correlation costs: the correlation, and how many times the budget
    it takes, from that of the budget itself up to the last that was measured.

    Between two lengths on a straight line over the logarithm of the length; where a longer run
    ranked no better, the line is level.
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


def extrapolated(looks: Sequence[tuple[int, float]], steps: int) -> float:
    """The score after so many steps, by a straight line over the logarithm of the step.

    :param looks: steps and scores, at least two.
    """
    if not all(math.isfinite(score) for _, score in looks):
        return math.inf
    slope, level = np.polyfit([math.log(step) for step, _ in looks], [s for _, s in looks], 1)
    return float(level + slope * math.log(steps))


def fitted(ways: Sequence[Sequence[float]], long: Sequence[float]) -> list[float]:
    """Every config's place by a fit of the long score to all others, in deviations from the mean.

    The mean of all others leans away from the score left out, so a fit that had learned nothing
    would put configs in the opposite order: each fit gives its slopes and not its level, and
    they are read at the deviation from the centre of all configs.
    """
    x = np.array([_bounded(way) for way in ways]).T
    y, centre = np.array(_bounded(long)), x.mean(axis=0)
    predicted = []
    for config in range(len(y)):
        others = np.arange(len(y)) != config
        predicted.append(float((x[config] - centre) @ _slopes(x[others], y[others])))
    return predicted


def _slopes(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """By a ridge regression, of the scores as they are."""
    centre, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale == 0] = 1.0
    z, mean = (x - centre) / scale, y.mean()
    u, s, vt = np.linalg.svd(z, full_matrices=False)
    uy = u.T @ (y - mean)

    def left_out(strength: float) -> float:
        """Mean square error where each config is predicted by the others."""
        shrunk = s**2 / (s**2 + strength)
        hat = (u**2 * shrunk).sum(axis=1) + 1 / len(y)
        residual = y - mean - u @ (shrunk * uy)
        return float(np.mean((residual / (1 - hat)) ** 2))

    strength = min(SHRINKING, key=left_out)
    weights = vt.T @ (s / (s**2 + strength) * uy)
    slopes: NDArray[np.float64] = weights / scale
    return slopes


def _bounded(scores: Sequence[float]) -> list[float]:
    """With what is infinite a little worse than the worst number."""
    known = [score for score in scores if math.isfinite(score)] or [0.0]
    last = max(known) + 0.1 * (max(known) - min(known))
    return [score if math.isfinite(score) else last for score in scores]
