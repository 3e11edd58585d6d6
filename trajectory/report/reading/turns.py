"""Iterations as a report counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from autoresearch.values import Scalar
from trainer.spec import TrialFailed, TrialOk
from trajectory.rows import TrialRecord

Outcome: TypeAlias = Literal["keep", "discard", "failed", "refused"]
"""``failed``: a trial of it ended without a measurement and none with one. ``refused``: no trial
was run, because the rails refused the proposal or there was none."""


@dataclass(slots=True)
class Spent:
    """Where wall time went, in seconds."""

    proposing: float = 0.0
    setup: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0
    failed: float = 0.0
    """Trials that ended without a measurement, whole."""
    other: float = 0.0
    """The rest: starting and reaping processes, writing the record."""

    def by_part(self) -> dict[str, float]:
        """Seconds by the names in PARTS."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def total(self) -> float:
        return sum(self.by_part().values())

    def add(self, more: Spent, weight: float = 1.0) -> None:
        """Add another's seconds to these."""
        for name, seconds in more.by_part().items():
            setattr(self, name, getattr(self, name) + weight * seconds)

    def add_trial(self, trial: TrialRecord) -> None:
        """Add one trial's."""
        result = trial.result
        if isinstance(result, TrialFailed):
            self.failed += trial.wall_s
            return
        self.setup += result.setup_s
        self.training += result.train_s
        eval_s = result.eval_s if isinstance(result, TrialOk) else 0.0  # a command's is in its run
        self.evaluation += eval_s
        self.other += max(0.0, trial.wall_s - result.setup_s - result.train_s - eval_s)


PARTS = ("training", "evaluation", "setup", "proposing", "failed", "other")


@dataclass(frozen=True, slots=True)
class Turn:
    """What is kept of an iteration. Scores are in the campaign's measure, lower is better."""

    iter: int
    kind: str
    """The kind of the proposer whose proposal was used."""
    outcome: Outcome
    config_hash: str | None
    changed: Mapping[str, Scalar]
    """Knob to the value asked for."""
    described: str
    """What stands for the change where no config is given; empty where one is."""
    mean: float | None
    runs: int
    """Seeds of the candidate behind ``mean``."""
    delta: float | None
    stderr: float | None
    spent: Spent
    energy_wh: float | None


@dataclass(frozen=True, slots=True)
class Reign:
    """From this iteration on, this config was the incumbent. The baseline reigns from 0."""

    iter: int
    config_hash: str
