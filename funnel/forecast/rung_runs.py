"""Describe a ladder's runs for a forecast: size, schedule, and the loss curve in bins.

The multi-power law (Luo et al. 2025, arXiv 2503.12811, equations 1 and 2) and the law of Tissue et
al. (2024, arXiv 2408.11029) agree on two points. Progress depends on the sum of learning rates, and
each decrease of the rate lowers the loss further, though not at once. They differ in how this gain
settles: by a power of the sum of subsequent rates, ``1 - (x + 1)^-beta``, or exponentially in
steps, as with momentum. This module implements both. The rate is in units of its peak and the run
in units of its length, so runs of any size and length are comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, PositiveInt
from funnel.forecast.robust_fit import Array
from trainer.spec import Config, CurvePoint

SETTLING_EXPONENT = 0.59
"""``beta`` of Luo et al.: 0.583, 0.598 and 0.594 for Llama-2 models of 25, 100 and 400 M."""
SETTLING_RATE_EXPONENT = 0.64
"""``gamma`` of Luo et al.: 0.641, 0.655 and 0.635 for the same models."""
GRID = 256
"""Number of equal parts into which a run is divided."""


class ScheduleShape(Frozen):
    """A learning rate schedule, relative to its peak."""

    steps: PositiveInt
    warmup_steps: NonNegativeInt
    kind: Literal["cosine", "linear", "wsd"] = "cosine"
    decay_share: NonNegative = 0.2
    """Share of the steps, at the end, in which the rate of ``wsd`` falls."""
    lr_min_ratio: NonNegative = 0.0

    def rates(self) -> Array:
        """Return the rates at the GRID + 1 boundaries of the parts, in units of the peak."""
        done = np.linspace(0.0, 1.0, GRID + 1)
        warmup = self.warmup_steps / self.steps
        after = np.clip((done - warmup) / max(1 - warmup, 1e-9), 0.0, 1.0)
        if self.kind == "cosine":
            fall = 0.5 * (1 + np.cos(math.pi * after))
        elif self.kind == "linear":
            fall = 1 - after
        else:
            fall = np.clip((1 - done) / max(self.decay_share, 1e-9), 0.0, 1.0)
        rates: Array = self.lr_min_ratio + (1 - self.lr_min_ratio) * fall
        if warmup > 0:
            rates = np.where(done < warmup, done / warmup, rates)
        return rates

    def sums(self) -> Array:
        """Return the sum of rates up to each boundary, in units of a whole run at the peak."""
        rates = self.rates()
        steps = (rates[1:] + rates[:-1]) / 2 / GRID
        return np.concatenate([[0.0], np.cumsum(steps)])

    def progress(self) -> Array:
        """Return the sum of rates up to each boundary, relative to the whole run's."""
        sums = self.sums()
        progress: Array = sums / sums[-1]
        return progress

    def annealed(self, speed: float, *, by_sums: bool = True) -> Array:
        """Return the gain from decreases of the rate up to each boundary.

        A decrease from the peak to zero has a gain of 1 once settled.

        :param speed: how fast a gain settles. It multiplies sums of rates, in units of a whole run
            at the peak, or steps, in units of the run.
        :param by_sums: settle by a power of sums of rates (Luo et al.); else exponentially in
            steps.
        """
        return _annealed(self, speed, by_sums)

    def at(self, share: Array, of_grid: Array) -> Array:
        """Interpolate one of the above at these shares of the run.

        :param of_grid: values at the GRID + 1 boundaries.
        """
        return np.interp(share, np.linspace(0.0, 1.0, GRID + 1), of_grid)


@lru_cache(maxsize=1024)
def _annealed(schedule: ScheduleShape, speed: float, by_sums: bool) -> Array:
    rates, sums = schedule.rates(), schedule.sums()
    done = np.linspace(0.0, 1.0, GRID + 1)
    fall_K = np.maximum(rates[:-1] - rates[1:], 0.0)
    fall_K[done[1:] * schedule.steps <= schedule.warmup_steps] = 0.0
    if by_sums:
        rate_K = np.maximum(rates[1:], 1e-3)
        since_XK = np.maximum(sums[:, None] - sums[None, 1:], 0.0)
        # Computing the power by logarithms is many times faster.
        left_XK = np.log1p(speed * since_XK * rate_K**-SETTLING_RATE_EXPONENT)
        left_XK *= SETTLING_EXPONENT
    else:
        left_XK = speed * np.maximum(done[:, None] - done[None, 1:], 0.0)
    gained: Array = -np.expm1(-left_XK) @ fall_K
    gained.setflags(write=False)
    return gained


def schedule_of(config: Config, steps: int, warmup_steps: int) -> ScheduleShape:
    """Return the config's schedule over this many steps."""
    return ScheduleShape(
        steps=steps,
        warmup_steps=min(warmup_steps, steps),
        kind=config.schedule,
        decay_share=config.decay_share,
        lr_min_ratio=config.lr_min_ratio,
    )


FIRST_SHARE = 0.02
"""Share of a run before which the loss falls steeply and follows no known form."""
WARMUPS = 2.0
"""Multiple of the warm-up after which the curve counts."""
BINS = 80
FEWEST_BINS = 12
_LAST = 3


@dataclass(frozen=True, slots=True)
class RungRun:
    """A finished run of a ladder with its curve."""

    params: float
    """Parameters without embeddings."""
    tokens_per_step: float
    schedule: ScheduleShape
    curve: Sequence[CurvePoint]

    @property
    def tokens(self) -> float:
        """Tokens of the whole run."""
        return self.schedule.steps * self.tokens_per_step

    @property
    def compute(self) -> float:
        """Training compute, ``6 N D``, in FLOPs."""
        return 6 * self.params * self.tokens


def first_share(schedule: ScheduleShape) -> float:
    """Return the share of a run from which its curve follows the form."""
    return max(FIRST_SHARE, WARMUPS * schedule.warmup_steps / schedule.steps)


@dataclass(frozen=True, slots=True)
class BinnedCurve:
    """A rung's curve in bins, half of them spaced geometrically, half linearly in steps."""

    share: Array
    log_loss: Array
    weight: Array
    """Number of points in each bin."""

    @property
    def over_end(self) -> Array:
        """Loss relative to the mean of the last few bins."""
        last = slice(-_LAST, None)
        end = np.average(self.log_loss[last], weights=self.weight[last])
        return np.asarray(np.exp(self.log_loss - end))

    @property
    def pull(self) -> Array:
        """Weights for squared errors of ``over_end``, whose noise is relative."""
        return self.weight / self.over_end**2

    @classmethod
    def of(cls, run: RungRun) -> BinnedCurve:
        """Bin the curve of a run.

        :raises HandoffError: if too few of its points count.
        """
        first = first_share(run.schedule)
        points = [p for p in run.curve if first * run.schedule.steps < p.step]
        points = [p for p in points if p.step <= run.schedule.steps and math.isfinite(p.loss)]
        if len(points) < FEWEST_BINS:
            raise HandoffError(
                f"a rung of the ladder has {len(points)} losses between its warm-up and its end, "
                f"and a curve needs {FEWEST_BINS}; train longer rungs with: autoresearch ladder"
            )
        step = np.array([p.step for p in points], dtype=np.float64)
        first_step, last_step = step[0] * (1 - 1e-9), step[-1] * (1 + 1e-9)
        ends = np.concatenate(
            [
                np.geomspace(first_step, last_step, BINS // 2 + 1),
                np.linspace(first_step, last_step, BINS // 2 + 1),
            ]
        )
        place = np.digitize(step, np.unique(ends))
        parts = [place == number for number in np.unique(place)]  # no bin is empty
        loss = np.log([p.loss for p in points])
        return cls(
            share=np.array([step[part].mean() for part in parts]) / run.schedule.steps,
            log_loss=np.array([loss[part].mean() for part in parts]),
            weight=np.array([float(part.sum()) for part in parts]),
        )
