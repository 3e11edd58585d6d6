"""Define the record of a trial, which several kinds of rows contain."""

from __future__ import annotations

from operator import not_
from typing import Literal, TypeAlias

from pydantic import Field

from autoresearch.values import (
    Frozen,
    NonNegative,
    NonNegativeInt,
)
from trainer.spec import (
    Place,
    TrialFailed,
    TrialResult,
)

Role: TypeAlias = Literal[
    "baseline",
    "candidate",
    "reference",
    "stress",
    "attribution",
    "ladder",
    "confirm",
    "calibration",
]


class TrialRecord(Frozen):
    """One trial as the journal stores it."""

    trial_id: str
    role: Role
    config_hash: str
    seed: NonNegativeInt
    result: TrialResult
    wall_s: NonNegative
    """Seconds from the request to the result."""
    place: Place | None = Field(None, exclude_if=not_)
    """Place where it ran, if there were several; otherwise omitted."""
    at: str | None = Field(None, exclude_if=not_)
    """When it ended, ISO 8601, if it was one of several concurrent trials and its end was observed;
    otherwise omitted."""

    @property
    def objective(self) -> float | None:
        """Measured objective, lower is better; None if the trial failed."""
        return None if isinstance(self.result, TrialFailed) else self.result.objective
