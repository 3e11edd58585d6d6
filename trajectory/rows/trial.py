"""A trial in any row."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import SerializerFunctionWrapHandler, model_serializer

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
    place: Place | None = None
    """Where it ran, where there were several places; else left out."""
    at: str | None = None
    """When it ended, ISO 8601, where it was one of several at once and this was seen; else left
    out."""

    @model_serializer(mode="wrap")
    def _as_older_rows_are(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in ("place", "at"):
            if written[name] is None:
                del written[name]
        return written

    @property
    def objective(self) -> float | None:
        """What it measured, lower is better; None where it failed."""
        return None if isinstance(self.result, TrialFailed) else self.result.objective

    @property
    def val_bpb(self) -> float | None:
        """:attr:`objective` under the name that files have for it."""
        return self.objective
