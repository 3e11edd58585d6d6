"""Rows of runs outside the search, each kind with what such runs add up to."""

from __future__ import annotations

from typing import Literal, TypeAlias

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
from trajectory.rows.trial import TrialRecord

StressOutcome: TypeAlias = Literal[
    "survives", "spikes", "plateaus", "grad_blowup", "diverges", "nonfinite", "failed"
]
"""What a long run showed, the mildest first. ``spikes``: and recovered. ``failed``: it ended before
its loss said anything (out of memory, a crash, a time limit)."""
StressPurpose: TypeAlias = Literal["candidate", "baseline", "spread"]
"""Why a config was given a long run: it may be launched; it is what the others are compared with;
it helps to span the ranking."""


class StressVerdict(Frozen):
    """What a long run's curve says of its config."""

    outcome: StressOutcome
    step: PositiveInt | None = None
    """Where it happened; None where nothing did."""
    explanation: Text = ""
    """One sentence with the numbers it was judged by."""


class StressRow(Frozen):
    """One long run of one config with one seed."""

    kind: Literal["stress"] = "stress"
    at: str
    purpose: StressPurpose
    """The first that applies of those in :data:`StressPurpose`."""
    rank: PositiveInt
    """The config's place in the ranking of the time, 1 the best."""
    steps: PositiveInt
    """Steps of the run as asked for; its schedule decays over all of them. In a campaign whose
    budget counts tokens they are the baseline's, and every config trains on as many tokens."""
    config: AnyConfig
    config_hash: str
    trial: TrialRecord
    """Its ``role`` is ``stress``."""
    verdict: StressVerdict
    energy_wh: NonNegative | None = None


class Finalist(Frozen):
    """A config that a long run leaves standing, and what its long runs measured."""

    config_hash: str
    val_bpb: Finite
    """Mean over its long runs."""
    runs: PositiveInt
    stderr: NonNegative | None = None
    """Standard error of that mean, over the seeds there could be; None where no config had two long
    runs."""
    delta_vs_baseline: Finite | None = None
    """Mean difference from the baseline's long runs on common seeds; negative is better. None for
    the baseline, and where it had none."""
    delta_stderr: NonNegative | None = None
    pairs: NonNegativeInt = 0
    """Common seeds behind that difference."""


class FinalistsRow(Frozen):
    """What a stress test ends with: the best of its configs still standing, the best first,
    whatever they were run for. The launch plan is made from the latest."""

    kind: Literal["finalists"] = "finalists"
    at: str
    steps: PositiveInt
    finalists: tuple[Finalist, ...]
    spread: tuple[str, ...] = ()
    """Hashes of the configs, spread evenly over the ranking, whose long runs test it."""


class AttributionRow(Frozen):
    """One run that says what a change of the winner's was worth."""

    kind: Literal["attribution"] = "attribution"
    at: str
    winner_hash: str
    without: Text | None
    """The knob that is the baseline's in this config; None in the winner and the baseline."""
    steps: PositiveInt
    """Steps of the run as asked for, as a stress test's are; its schedule decays over all of them.
    """
    config: AnyConfig
    config_hash: str
    trial: TrialRecord
    """Its ``role`` is ``attribution``."""
    energy_wh: NonNegative | None = None


class ConfirmRow(Frozen):
    """One fresh run of a finalist or of the baseline. It counts in no ranking and no race."""

    kind: Literal["confirm"] = "confirm"
    at: str
    rank: PositiveInt
    """The config's place in the ranking of the time, 1 the best."""
    train_tokens: PositiveInt | None = None
    """It trained on so much of the train split; None: on all of it."""
    texts: tuple[str, ...] = ()
    """SHA-256 of each text that it was to score besides the search's."""
    seeds: PositiveInt
    """How many its confirmation was to run each config on."""
    config: AnyConfig
    config_hash: str
    trial: TrialRecord
    """Its ``role`` is ``confirm``; its result has a score for each text besides the search's."""
    energy_wh: NonNegative | None = None


class ConfirmedRow(Frozen):
    """What a confirmation ends with. The latest is what is told."""

    kind: Literal["confirmed"] = "confirmed"
    at: str
    found: Confirmed


class CalibrationRow(Frozen):
    """One run that says how far short runs rank as long ones do. It counts in no ranking."""

    kind: Literal["calibration"] = "calibration"
    at: str
    run: CalibrationRun
    config: AnyConfig
    config_hash: str
    trial: TrialRecord
    """Its ``role`` is ``calibration``."""
    energy_wh: NonNegative | None = None


class CalibratedRow(Frozen):
    """What such runs add up to. The latest is what is told."""

    kind: Literal["calibrated"] = "calibrated"
    at: str
    found: Calibrated


class LadderRow(Frozen):
    """One run of a ladder."""

    kind: Literal["ladder"] = "ladder"
    at: str
    plan_sha256: str
    """Of the plan it was run for; a later plan with the same run takes it too."""
    recipe: Recipe
    rung: PositiveInt
    params: PositiveInt
    lr_factor: Positive = 1.0
    steps: PositiveInt
    config: AnyConfig
    config_hash: str
    trial: TrialRecord
    """Its ``role`` is ``ladder``."""
    verdict: StressVerdict
    prediction_sha256: str | None = None
    """Of the prediction that stood when it began; None below the largest rung."""
    energy_wh: NonNegative | None = None

    @property
    def tokens(self) -> int:
        return self.steps * gpt(self.config).tokens_per_step


RowOfOneRun: TypeAlias = StressRow | AttributionRow | LadderRow | ConfirmRow | CalibrationRow
"""A run outside the search, which describes its config for itself alone."""
