"""Describe a run's learning rate schedule, and correct a loss curve for it.

The correction is that of Tissue et al. (2024, arXiv 2408.11029): the loss falls by a power of the
summed learning rates, and every decrease of the rate lowers it further, as a momentum of 0.999 a
step. Relative to the final loss, with x the completed share of a run, s the share of its summed
rates and G the gain from decreases so far,

    L(x) / L(1) - 1 = k (s^-b - 1) + c (G(1) - G(x))

``k``, ``b`` and ``c`` are fitted to the rungs. ``k`` and ``c`` change with powers of the tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, PositiveInt
from funnel.forecast.scaling_law import Array
from trainer.schema import CurvePoint

FIRST_SHARE, WARMUPS = 0.02, 2.0  # a share and a multiple of the warm-up, before which no form fits
# Equal parts of a run, and steps in which a gain settles to 63 %: Tissue et al.'s lambda is 0.999.
GRID, MOMENTUM_STEPS = 256, 1000
BINS, FEWEST_BINS = 40, 12
# The share of a run after which the curve determines its final loss, and the relative error of a
# bin: long runs vary by as much with the order of their text.
LATE, BIN_ERROR = 0.8, 0.002
# Of ln k, ln b, ln c, and the powers of tokens by which k and c change: the data term falls with a
# power of 0.28 to 0.37 of the tokens (Hoffmann et al., Besiroglu et al.), the gain with the peak
# rate.
PRIOR = np.array([math.log(0.1), math.log(0.5), math.log(0.03), -0.3, -0.15])
PRIOR_SD = np.array([2.0, 0.7, 2.0, 0.12, 0.12])


class ScheduleShape(Frozen):
    """A learning rate schedule, relative to its peak."""

    steps: PositiveInt
    warmup_steps: NonNegativeInt
    kind: Literal["cosine", "linear", "wsd"] = "cosine"
    decay_share: NonNegative = 0.2  # at the end, in which the rate of wsd falls
    lr_min_ratio: NonNegative = 0.0

    @property
    def first_share(self) -> float:
        """Share of the run from which its curve follows the form."""
        return min(0.5, max(FIRST_SHARE, WARMUPS * self.warmup_steps / self.steps))

    def rates(self) -> Array:
        """Return the rates at the GRID + 1 boundaries of the parts, in units of the peak."""
        done = np.linspace(0.0, 1.0, GRID + 1)
        warmup = self.warmup_steps / self.steps
        after = np.clip((done - warmup) / max(1 - warmup, 1e-9), 0.0, 1.0)
        fall = {
            "cosine": 0.5 * (1 + np.cos(math.pi * after)),
            "linear": 1 - after,
            "wsd": np.clip((1 - done) / max(self.decay_share, 1e-9), 0.0, 1.0),
        }[self.kind]
        rates: Array = self.lr_min_ratio + (1 - self.lr_min_ratio) * fall
        return np.where(done < warmup, done / max(warmup, 1e-9), rates)

    def features(self, share: Array) -> tuple[Array, Array]:
        """Return the progress at these shares of the run, and the gain from decreases that is
        left; a decrease from the peak to zero gains 1 once it has settled."""
        rates, done = self.rates(), np.linspace(0.0, 1.0, GRID + 1)
        fall_K = np.maximum(rates[:-1] - rates[1:], 0.0)
        fall_K[done[1:] * self.steps <= self.warmup_steps] = 0.0
        since_XK = np.maximum(done[:, None] - done[None, 1:], 0.0) * self.steps
        gain = -np.expm1(-since_XK / MOMENTUM_STEPS) @ fall_K
        sums = np.concatenate([[0.0], np.cumsum(rates[1:] + rates[:-1])])
        progress = np.maximum(np.interp(share, done, sums / sums[-1]), 1e-6)
        return progress, gain[-1] - np.interp(share, done, gain)


@dataclass(frozen=True, slots=True)
class RungRun:
    """A finished run of a ladder with its curve; parameters are without embeddings."""

    params: float
    tokens: float
    schedule: ScheduleShape
    curve: Sequence[CurvePoint]


class Curves:
    """The rungs' curves in bins, all in one array, to fit the correction to.

    P bins: the log loss, the progress, the gain that is left, and the tokens of the run. Raises
    HandoffError if too few of a run's losses count.
    """

    def __init__(self, runs: Sequence[RungRun]) -> None:
        self.runs, self._parts = runs, [_binned(run) for run in runs]
        self.largest = max(run.tokens for run in runs)
        self._scales = [run.tokens / self.largest for run in runs]

    def fit(self, chosen: Sequence[int]) -> Array:
        """Return the correction that fits the chosen runs best."""
        from scipy.optimize import least_squares  # noqa: PLC0415 (slow to load)

        loss_P, progress_P, left_P = np.concatenate([self._parts[k][1:] for k in chosen], axis=1)
        sizes = [self._parts[k].shape[1] for k in chosen]
        scale_P = np.repeat([self._scales[k] for k in chosen], sizes)
        starts = np.cumsum([0, *sizes[:-1]])

        def residuals(theta: Array) -> Array:
            rest_P = loss_P - over_end(theta, scale_P, progress_P, left_P)
            means = np.add.reduceat(rest_P, starts) / sizes
            return np.concatenate(
                [(rest_P - np.repeat(means, sizes)) / BIN_ERROR, (theta - PRIOR) / PRIOR_SD]
            )

        return np.asarray(least_squares(residuals, PRIOR, loss="soft_l1", xtol=1e-4).x)

    def end_levels(self) -> list[float]:
        """Return the logarithms of the runs' final losses, freed of their last steps' noise."""
        theta, levels = self.fit(range(len(self.runs))), []
        for (share, loss, progress, left), scale in zip(self._parts, self._scales, strict=True):
            late = share >= LATE
            levels.append(float(np.mean((loss - over_end(theta, scale, progress, left))[late])))
        return levels


def _binned(run: RungRun) -> Array:
    """Return a run's curve in bins by equal factors and by equal shares: the completed share, the
    mean log loss, the progress and the gain that is left, ``(4, bins)``.

    :raises HandoffError: if too few of its losses count.
    """
    steps, first = run.schedule.steps, run.schedule.first_share
    step, loss = np.array([(point.step, point.loss) for point in run.curve]).T
    counts = (first * steps < step) & (step <= steps) & np.isfinite(loss)
    if counts.sum() < FEWEST_BINS:
        raise HandoffError(
            f"a rung of the ladder has {counts.sum()} losses between its warm-up and its end, and "
            f"a curve needs {FEWEST_BINS}; train longer rungs with: autoresearch ladder"
        )
    share, loss = step[counts] / steps, np.log(loss[counts])
    ends = np.union1d(np.geomspace(first, 1, BINS // 2), np.linspace(first, 1, BINS // 2))
    _, place, held = np.unique(np.digitize(share, ends), return_inverse=True, return_counts=True)
    share, loss = (np.bincount(place, values) / held for values in (share, loss))
    return np.stack([share, loss, *run.schedule.features(share)])


def over_end(theta: Array, scale: Array | float, progress: Array, left: Array) -> Array:
    """Return ``ln L(x) - ln L(1)`` of a run.

    :param scale: its tokens, relative to the largest rung's.
    """
    k, b, c = np.exp(np.minimum(theta[:3], 3.0))
    fall = k * scale ** theta[3] * (progress**-b - 1)
    return np.asarray(np.log1p(fall + c * scale ** theta[4] * left))
