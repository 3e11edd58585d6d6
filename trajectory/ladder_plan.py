"""What a ladder writes down before it trains: its plan, and what its largest rung should come to.

Both are rows of the journal (:mod:`trajectory.rows`), and both are named by a SHA-256 of what they
say, so that a run can say which of them stood when it began.
"""

from __future__ import annotations

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
    """One recipe at one size and length, on every seed that it is trained with."""

    recipe: Recipe
    rung: PositiveInt
    """Its place by size, 1 the smallest."""
    params: PositiveInt
    """Of its shape, the embeddings' and the head's tables left out."""
    length: PositiveInt
    """Tokens as the ladder wants them: the same for both recipes. Whole steps may be a few more."""
    steps: PositiveInt
    """The whole of its schedule."""
    config: Config
    lr_factor: Positive = 1.0
    """Its learning rate over the one the rules give; other than 1 in a sweep of rates."""
    seeds: tuple[int, ...]
    expected_s: NonNegative
    """Of one seed, by the pace of the campaign's short runs."""

    @property
    def tokens(self) -> int:
        return self.steps * self.config.tokens_per_step


class LadderAsked(Frozen):
    """What a person asked of a ladder."""

    rungs: PositiveInt
    hours: Positive
    seeds: PositiveInt
    """Of the smaller rungs; the two largest have one."""
    tokens_per_param: Positive
    rates: NonNegativeInt = 0
    """Learning rates tried on each side of the rules', on the smaller rungs."""


class LadderPlanRow(Frozen):
    """Which runs a ladder is made of, decided before the first of them."""

    kind: Literal["ladder_plan"] = "ladder_plan"
    at: str
    asked: LadderAsked
    winner: Config
    """The recipe whose ladder it is, as the campaign found it."""
    chosen_by: Literal["stress", "search"]
    """What made it the winner: the latest stress test, or the short runs alone."""
    baseline: Config
    source_steps: PositiveInt
    """Of the schedule that the recipes' learning rates were found with."""
    runs: tuple[LadderRun, ...]
    """In the order in which they run, the largest rung last."""
    notes: tuple[PlainText, ...] = ()
    """What a reader should know of how the plan was made."""

    @property
    def sha256(self) -> str:
        """Of the plan without its time: what its runs and its prediction name it by."""
        return _sha256(self, "at")

    @property
    def largest(self) -> int:
        """The rung that is predicted before it is trained."""
        return max(run.rung for run in self.runs)


class PredictedLoss(Frozen):
    """What one recipe should come to at the largest rung, in bits per byte."""

    recipe: Recipe
    params: PositiveInt
    tokens: PositiveInt
    low: Finite
    """With ``high`` the ends of an interval for one run, 95 %."""
    middle: Finite
    high: Finite


class LadderPredictionRow(Frozen):
    """The largest rung as the smaller ones foretell it, written before its first trial."""

    kind: Literal["ladder_prediction"] = "ladder_prediction"
    at: str
    plan_sha256: str
    predicted: tuple[PredictedLoss, ...]
    trial_ids: tuple[str, ...]
    """The trials that it was made from."""
    sha256: str
    """Of the row itself without this value, as :attr:`sealed` makes it."""

    @property
    def sealed(self) -> str:
        """What ``sha256`` must be: of the row's other values as JSON with sorted keys."""
        return _sha256(self, "sha256")


def _sha256(row: Frozen, without: str) -> str:
    """Fields that a later version adds have defaults, which are left out: older rows keep their
    hashes."""
    said = row.model_dump(mode="json", exclude={without}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
