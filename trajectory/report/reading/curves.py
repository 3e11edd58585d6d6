"""Learning curves of configs, averaged over their runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from trainer.spec import CurvePoint
from trajectory.evidence import ConfigEvidence

MAX_POINTS = 400
"""The most points of a drawn curve; a longer one is thinned evenly."""
SMOOTHING = 20
"""Divisor of a curve's logged points that gives the window of its trailing mean."""

CurveReader: TypeAlias = Callable[[str], Sequence[CurvePoint]]
"""Returns the curve of a trial id; empty if there is none."""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Training loss in nats per token, averaged over seeds and smoothed by a trailing mean."""

    config_hash: str
    step: tuple[int, ...]
    loss: tuple[float, ...]
    seeds: int
    window: int
    """Logged points in the trailing mean."""


def curve_of(entry: ConfigEvidence, read: CurveReader) -> LearningCurve | None:
    """Return a config's curve over all measured seeds; None if no trial left one."""
    return merged(entry.config_hash, [read(name) for name in entry.trial_ids.values()])


def merged(config_hash: str, runs: Sequence[Sequence[CurvePoint]]) -> LearningCurve | None:
    """Return the mean of these runs over the steps that all of them logged."""
    runs = [run for run in runs if run]
    if not runs:
        return None
    by_step = [{point.step: point.loss for point in run} for run in runs]
    steps = sorted(set.intersection(*(set(losses) for losses in by_step)))
    if not steps:
        return None
    loss = [fmean(losses[step] for losses in by_step) for step in steps]
    window = max(1, len(steps) // SMOOTHING)
    smooth = [fmean(loss[max(0, i + 1 - window) : i + 1]) for i in range(len(loss))]
    stride = math.ceil(len(steps) / MAX_POINTS)
    kept = range((len(steps) - 1) % stride, len(steps), stride)  # includes the last step
    return LearningCurve(
        config_hash,
        tuple(steps[i] for i in kept),
        tuple(smooth[i] for i in kept),
        len(runs),
        window,
    )
