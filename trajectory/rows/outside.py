"""Define rows of runs outside the search, and of the results computed from them."""

from typing import Literal, TypeAlias

from pydantic import AliasChoices, Field

from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
)
from trainer.spec import (
    AnyConfig,
    gpt,
)
from trajectory.calibrated import Calibrated, CalibrationRun
from trajectory.confirmed import Confirmed
from trajectory.ladder_plan import Recipe
from trajectory.proposals import Text
from trajectory.rows.search import TrialRecord

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
