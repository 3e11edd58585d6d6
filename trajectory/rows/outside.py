"""Define rows of runs outside the search, of the results computed from them, and of ladders.

A ladder writes its plan and its prediction before training. A SHA-256 of its content identifies
each, so a run can record which plan and prediction were valid when it began.
"""

import hashlib
import json
from typing import Literal, TypeAlias

from pydantic import AliasChoices, Field

from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    PlainText,
    Positive,
    PositiveInt,
)
from trainer.schema import (
    AnyConfig,
    Config,
    gpt,
)
from trajectory.calibrated import Calibrated, CalibrationRun
from trajectory.confirmed import Confirmed
from trajectory.proposals import Text
from trajectory.rows.search import TrialRecord

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


StressOutcome: TypeAlias = Literal[
    "survives", "spikes", "plateaus", "grad_blowup", "diverges", "nonfinite", "failed"
]
"""Outcome of a long run, mildest first. ``spikes``: the loss spiked and recovered. ``failed``: the
run ended too early to judge (out of memory, a crash, a time limit)."""
StressPurpose: TypeAlias = Literal["candidate", "baseline", "spread"]
"""Why a config gets a long run: it is a launch candidate, it is the baseline for comparison, or it
belongs to the spread over the ranking."""


class StressVerdict(Frozen):
    """Judgment of a long run's curve."""

    outcome: StressOutcome
    step: PositiveInt | None = None
    """Step at which it happened; None if nothing did."""
    explanation: Text = ""
    """One sentence with the numbers behind the judgment."""


class RowOfOneRun(Frozen):
    """A run outside the search. Its row describes the config for that row alone."""

    kind: str
    at: str
    config: AnyConfig
    config_hash: str
    trial: TrialRecord
    """Its ``role`` is the row's ``kind``."""
    energy_wh: NonNegative | None = None


class StressRow(RowOfOneRun):
    """One long run of one config with one seed."""

    kind: Literal["stress"] = "stress"
    purpose: StressPurpose
    """The first applicable one in the order of :data:`StressPurpose`."""
    rank: PositiveInt
    """The config's rank at the time; 1 is the best."""
    steps: PositiveInt
    """Requested steps of the run; its schedule decays over all of them. If the campaign's budget
    counts tokens, these are the baseline's steps, and every config trains on as many tokens."""
    verdict: StressVerdict


class Finalist(Frozen):
    """A config that survived its long runs, and their measurements."""

    config_hash: str
    objective: Finite = Field(validation_alias=AliasChoices("objective", "val_bpb"))
    """Mean objective over its long runs."""
    runs: PositiveInt
    stderr: NonNegative | None = None
    """Standard error of that mean, over all possible seeds; None if no config had two long runs."""
    delta_vs_baseline: Finite | None = None
    """Mean difference from the baseline's long runs on common seeds; negative is better. None for
    the baseline, and if it had none."""
    delta_stderr: NonNegative | None = None
    pairs: NonNegativeInt = 0
    """Number of common seeds behind that difference."""


class FinalistsRow(Frozen):
    """The result of a stress test: the best surviving configs, best first, including the baseline
    and spread configs.

    The launch plan uses the latest such row.
    """

    kind: Literal["finalists"] = "finalists"
    at: str
    steps: PositiveInt
    finalists: tuple[Finalist, ...]
    spread: tuple[str, ...] = ()
    """Hashes of the configs, spread evenly over the ranking, whose long runs test it."""


class AttributionRow(RowOfOneRun):
    """One run that measures what a change of the winner is worth."""

    kind: Literal["attribution"] = "attribution"
    winner_hash: str
    without: Text | None
    """The knob that this config takes from the baseline; None for the winner and the baseline."""
    steps: PositiveInt
    """Requested steps of the run, counted as in a stress test; its schedule decays over all of
    them."""


class ConfirmRow(RowOfOneRun):
    """One fresh run of a finalist or of the baseline, excluded from rankings and races."""

    kind: Literal["confirm"] = "confirm"
    rank: PositiveInt
    """The config's rank at the time; 1 is the best."""
    train_tokens: PositiveInt | None = None
    """Tokens of the train split that it trained on; None: all of them."""
    texts: tuple[str, ...] = ()
    """SHA-256 of each text to score in addition to the search's."""
    seeds: PositiveInt
    """Seeds that its confirmation planned per config."""


class ConfirmedRow(Frozen):
    """The result of a confirmation. The latest one is reported."""

    kind: Literal["confirmed"] = "confirmed"
    at: str
    found: Confirmed


class CalibrationRow(RowOfOneRun):
    """One run of a calibration, excluded from rankings."""

    kind: Literal["calibration"] = "calibration"
    run: CalibrationRun


class CalibratedRow(Frozen):
    """The result of a calibration. The latest one is reported."""

    kind: Literal["calibrated"] = "calibrated"
    at: str
    found: Calibrated


class LadderRow(RowOfOneRun):
    """One run of a ladder."""

    kind: Literal["ladder"] = "ladder"
    plan_sha256: str
    """Hash of the plan for which it was run; a later plan that contains the same run reuses it."""
    recipe: Recipe
    rung: PositiveInt
    params: PositiveInt
    lr_factor: Positive = 1.0
    steps: PositiveInt
    verdict: StressVerdict
    prediction_sha256: str | None = None
    """Hash of the prediction that was valid when it began; None below the largest rung."""

    @property
    def tokens(self) -> int:
        return self.steps * gpt(self.config).tokens_per_step
