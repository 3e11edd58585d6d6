"""A trial in any row."""

from __future__ import annotations

from typing import Literal, TypeAlias

from autoresearch.values import (
    Frozen,
    NonNegative,
    NonNegativeInt,
)
from trainer.spec import (
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

    @property
    def objective(self) -> float | None:
        """What it measured, lower is better; None where it failed."""
        return None if isinstance(self.result, TrialFailed) else self.result.objective

    @property
    def val_bpb(self) -> float | None:
        """:attr:`objective` under the name that files have for it."""
        return self.objective
