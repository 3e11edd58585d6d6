"""Define the rows that a ladder writes before training: its plan, and its prediction.

Both are rows of the journal (:mod:`trajectory.rows`). A SHA-256 of its content identifies each, so
a run can record which plan and prediction were valid when it began.
"""

import hashlib
import json
from typing import Literal, TypeAlias

from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    PlainText,
    Positive,
    PositiveInt,
)
from trainer.spec import Config

Recipe: TypeAlias = Literal["winner", "baseline"]


class LadderRun(Frozen):
    """One recipe at one size and length, on all its seeds."""

    recipe: Recipe
    rung: PositiveInt
    """Its rank by size; 1 is the smallest."""
    params: PositiveInt
    """Parameters of its shape, without the tables of the embeddings and the head."""
    length: PositiveInt
    """Tokens that the ladder plans, the same for both recipes. Rounding to whole steps may add a
    few."""
    steps: PositiveInt
    """Steps of its whole schedule."""
    config: Config
    lr_factor: Positive = 1.0
    """Learning rate relative to the one that the rules give; not 1 only in a learning-rate
    sweep."""
    seeds: tuple[int, ...]
    expected_s: NonNegative
    """Expected seconds for one seed, at the speed of the campaign's short runs."""

    @property
    def tokens(self) -> int:
        return self.steps * self.config.tokens_per_step


class LadderAsked(Frozen):
    """The settings that the user gave for a ladder."""

    rungs: PositiveInt
    hours: Positive
    seeds: PositiveInt
    """Seeds of the smaller rungs; the two largest have one."""
    tokens_per_param: Positive
    rates: NonNegativeInt = 0
    """Learning rates to try on each side of the rules' rate, on the smaller rungs."""


class LadderPlanRow(Frozen):
    """The planned runs of a ladder, written before the first of them."""

    kind: Literal["ladder_plan"] = "ladder_plan"
    at: str
    asked: LadderAsked
    winner: Config
    """The ladder's recipe, as the campaign found it."""
    chosen_by: Literal["stress", "search"]
    """How the winner was chosen: by the latest stress test, or by short runs alone."""
    baseline: Config
    source_steps: PositiveInt
    """Steps of the schedule with which the recipes' learning rates were found."""
    runs: tuple[LadderRun, ...]
    """The runs in execution order, with the largest rung last."""
    notes: tuple[PlainText, ...] = ()
    """Notes for the reader on how the plan was made."""

    @property
    def sha256(self) -> str:
        """Hash of the plan without its time; the plan's runs and prediction refer to it."""
        return _sha256(self, "at")

    @property
    def largest(self) -> int:
        """The rung whose loss is predicted before it is trained."""
        return max(run.rung for run in self.runs)


class PredictedLoss(Frozen):
    """Predicted loss of one recipe at the largest rung, in bits per byte."""

    recipe: Recipe
    params: PositiveInt
    tokens: PositiveInt
    low: Finite
    """Lower end of the 95 % interval for one run; ``high`` is its upper end."""
    middle: Finite
    high: Finite


class LadderPredictionRow(Frozen):
    """The largest rung's loss, predicted from the smaller ones and written before its first
    trial."""

    kind: Literal["ladder_prediction"] = "ladder_prediction"
    at: str
    plan_sha256: str
    predicted: tuple[PredictedLoss, ...]
    trial_ids: tuple[str, ...]
    """The trials that the prediction was fitted to."""
    sha256: str
    """Hash of the row without this field; equal to :attr:`sealed`."""

    @property
    def sealed(self) -> str:
        """The expected ``sha256``: the hash of the row's other fields as JSON with sorted keys."""
        return _sha256(self, "sha256")


def _sha256(row: Frozen, without: str) -> str:
    """Hash a row without one field.

    Fields at their default are left out, so a field that a later version adds keeps old hashes
    valid.
    """
    said = row.model_dump(mode="json", exclude={without}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
