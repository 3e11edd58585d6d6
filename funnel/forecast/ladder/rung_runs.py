"""Describe a ladder's runs for a forecast: size, schedule, and the loss curve in bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoresearch.errors import HandoffError
from funnel.forecast.ladder.schedule_shape import ScheduleShape
from funnel.forecast.power_law import Array
from trainer.spec import CurvePoint

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
        parts = _parts(step)
        loss = np.log([p.loss for p in points])
        return cls(
            share=np.array([step[part].mean() for part in parts]) / run.schedule.steps,
            log_loss=np.array([loss[part].mean() for part in parts]),
            weight=np.array([float(len(part)) for part in parts]),
        )


def _parts(step: Array) -> list[NDArray[np.intp]]:
    """Return the indices of each bin's points; no bin is empty."""
    first, last = step[0] * (1 - 1e-9), step[-1] * (1 + 1e-9)
    ends = np.concatenate(
        [np.geomspace(first, last, BINS // 2 + 1), np.linspace(first, last, BINS // 2 + 1)]
    )
    place = np.digitize(step, np.unique(ends))
    return [np.flatnonzero(place == number) for number in np.unique(place)]
