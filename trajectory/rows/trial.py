"""A trial in any row."""

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
    """One trial as the journal keeps it."""

    trial_id: str
    role: Role
    config_hash: str
    seed: NonNegativeInt
    result: TrialResult
    wall_s: NonNegative
    """From the request to the result in hand."""
    place: Place | None = Field(None, exclude_if=not_)
    """Where it ran, where there were several places; else left out."""
    at: str | None = Field(None, exclude_if=not_)
    """When it ended, ISO 8601, where it was one of several at once and this was seen; else left
    out."""

    @property
    def objective(self) -> float | None:
        """What it measured, lower is better; None where it failed."""
        return None if isinstance(self.result, TrialFailed) else self.result.objective

    @property
    def val_bpb(self) -> float | None:
        """:attr:`objective` under the name that files have for it."""
        return self.objective
