"""Iterations and learning curves, as the report keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from autoresearch.values import Scalar
from trainer.schema import CurvePoint, TrialFailed
from trajectory.evidence import ConfigEvidence
from trajectory.rows import TrialRecord

Outcome: TypeAlias = Literal["keep", "discard", "failed", "pruned", "refused"]
"""Result of an iteration. ``failed``: a trial ran, and none gave a measurement. ``pruned``: its
trial was stopped early, far behind the reference. ``refused``: no trial ran, because the rails
refused the proposal or there was none."""


@dataclass(slots=True)
class Spent:
    """Wall time by activity, in seconds."""

    proposing: float = 0.0
    setup: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0
    failed: float = 0.0
    """Whole time of trials that ended without a measurement."""
    other: float = 0.0
    """The rest: starting and reaping processes, writing the record."""

    def by_part(self) -> dict[str, float]:
        """Return the seconds by the names in PARTS."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def total(self) -> float:
        return sum(self.by_part().values())

    def add(self, more: Spent, weight: float = 1.0) -> None:
        """Add another's seconds to these."""
        for name, seconds in more.by_part().items():
            setattr(self, name, getattr(self, name) + weight * seconds)

    def add_trial(self, trial: TrialRecord) -> None:
        """Add one trial's seconds."""
        result = trial.result
        if isinstance(result, TrialFailed):
            self.failed += trial.wall_s
            return
        self.setup += result.setup_s
        self.training += result.train_s
        self.evaluation += result.eval_s
        self.other += max(0.0, trial.wall_s - result.setup_s - result.train_s - result.eval_s)


PARTS = ("training", "evaluation", "setup", "proposing", "failed", "other")


@dataclass(frozen=True, slots=True)
class ReportedIteration:
    """The facts of an iteration that the report keeps. Scores are objectives in the campaign's
    measure: lower is better."""

    iter: int
    kind: str
    """Kind of the proposer whose proposal was used."""
    outcome: Outcome
    config_hash: str | None
    changed: Mapping[str, Scalar]
    """Maps each changed knob to the proposed value."""
    mean: float | None
    runs: int
    """Seeds of the candidate behind ``mean``."""
    delta: float | None
    stderr: float | None
    spent: Spent
    energy_wh: float | None


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
