"""The rows of trajectory.jsonl: every fact a campaign leaves behind, as frozen types.

Proposals and verdicts (:mod:`trajectory.proposals`) and decisions are defined here rather than in
``agent`` because the record outlives the code that decided: whoever reads a journal needs these and
nothing else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
    model_validator,
)

from autoresearch.errors import CampaignError
from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
)
from trainer.spec import (
    BPB,
    AnyConfig,
    Averaging,
    Budget,
    CorpusInfo,
    Measure,
    ScriptInfo,
    TrialFailed,
    TrialResult,
    gpt,
)
from trajectory.calibrated import Calibrated, CalibrationRun
from trajectory.confirmed import Confirmed
from trajectory.ladder_plan import LadderPlanRow, LadderPredictionRow, Recipe
from trajectory.proposals import Proposal, ProposerRecord, Text, Verdict
from trajectory.rules import SaidRules, with_rules_as_one, with_rules_by_name

SCHEMA = 4
"""Version of the row format, in the first row of every journal. Readers accept all older ones, and
refuse newer ones by that row. 2 added the kinds ``stress`` and ``finalists``; 3 a proposal's
``restated``, and a decision's ``first_drop`` and ``no_effect``; 4 the kinds ``attribution``,
``ladder_plan``, ``ladder_prediction``, ``ladder``, ``confirm``, ``confirmed``, ``calibration`` and
``calibrated``, a result's ``texts`` and ``looks_bpb``, the first row's ``hold_back``,
``train_tokens``, ``cooldown_steps`` and ``average``, and campaigns of a command: its ``script`` and
``measure`` in place of a corpus, its configs and results.

Fields named ``…_bpb``, and every ``delta``, hold *objectives* (:class:`trainer.spec.Measure`): of
the built-in trainer bits per byte, of a command its score, or its negative where the score is to
grow."""
STRESS_SCHEMA, ITERATION_SCHEMA, OUTSIDE_SCHEMA = 2, 3, 4
"""What a reader must know for rows of a stress test, for an iteration's as they are now, and for
those of an attribution, a ladder, a confirmation or a calibration."""


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


class Decision(Frozen):
    """Keep or discard, with every number it was made from.

    ``delta`` is estimate minus reference, of objectives: negative is better.
    """

    action: Literal["keep", "discard", "none"]
    """``none``: nothing was trained."""
    reference_hash: str | None = None
    reference_bpb: Finite | None = None
    estimate_bpb: Finite | None = None
    delta: Finite | None = None
    stderr: NonNegative | None = None
    sigma: NonNegative | None = None
    """Sd of one paired difference: ``stderr = sigma / sqrt(pairs)``."""
    pairs: NonNegativeInt = 0
    """Common seeds on which both configs were measured."""
    pairs_ss: NonNegative = 0
    """Sum of squares of the paired differences about ``delta``: the noise of a race, pooled over
    races with ``pairs - 1`` degrees of freedom each."""
    z: Finite | None = None
    """``-delta / stderr``, to be compared with ``z_keep``."""
    rules: SaidRules = Field(default_factory=dict)
    """What it was judged by. In a row each rule stands under its own name."""
    no_effect: bool = False
    """The candidate trained exactly as its reference did: what it changes does nothing there."""
    explanation: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _rules_are_one_value(cls, said: Any) -> Any:
        return with_rules_as_one(said) if isinstance(said, dict) else said

    @model_serializer(mode="wrap")
    def _as_older_rows_are(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What older formats had no word for is left out of rows that do not need it."""
        written = with_rules_by_name(write(self))
        if not self.no_effect:
            written.pop("no_effect", None)
        return written


class CampaignRow(Frozen):
    """The first row: what everything after it was measured with."""

    kind: Literal["campaign"] = "campaign"
    schema_: Annotated[int, Field(alias="schema")] = SCHEMA
    id: str
    created_at: str
    """ISO 8601, UTC."""
    menu_name: str
    menu_sha256: str
    menu_toml: str
    """The whole menu, so that the campaign is legible without the file it came from."""
    corpus: CorpusInfo | None = None
    """None where a command brings its own text."""
    script: ScriptInfo | None = None
    """The command that trains; None where the built-in trainer does. Left out of such a row."""
    measure: Measure | None = None
    """The unit of the command's score; left out with it."""
    budget: Budget
    horizon_steps: PositiveInt | None
    cooldown_steps: NonNegativeInt = 0
    """This and ``average`` as a trial's spec has them; left out of a row where it has not."""
    average: Averaging | None = None
    backend: str
    device: str
    compile: bool = False
    hold_back: bool = False
    """Trials train without the documents that a confirmation sets aside to score; left out of a
    row where they do not."""
    train_tokens: PositiveInt | None = None
    """How much of the train split its trials train on, from the first on, where they hold back;
    left out of a row where they do not."""
    reference: Literal["incumbent", "baseline"]
    baseline_seeds: PositiveInt
    seed: NonNegativeInt
    """Root of every random choice the campaign makes."""
    z_keep: NonNegative
    max_runs: PositiveInt
    """Most seeds a candidate races over."""
    first_drop: Finite | None = None
    """The loss on the first pair that ends a race; None where the other rules said it, before 3."""
    max_changes: PositiveInt
    sandbox: str
    """How trials are confined, as the sandbox describes itself."""
    versions: dict[str, str]
    hardware: dict[str, str]

    @model_serializer(mode="wrap")
    def _as_older_rows_are(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if self.first_drop is None:
            written.pop("first_drop", None)
        for name in ("cooldown_steps", "average", "hold_back", "train_tokens"):
            if not getattr(self, name):
                written.pop(name, None)
        for name in ("corpus", "script", "measure"):
            if written[name] is None:
                del written[name]
        return written

    @property
    def text(self) -> CorpusInfo:
        """The corpus.

        :raises CampaignError: where a command brings its own text, of which nothing is known.
        """
        if self.corpus is None:
            raise CampaignError(
                f"the campaign {self.menu_name} trains with a command of its own, of whose text "
                "nothing is known; this is for campaigns of the built-in trainer"
            )
        return self.corpus

    @property
    def measured_in(self) -> Measure:
        """The unit of every score of the campaign."""
        return self.measure or BPB


class BaselineRow(Frozen):
    """One seed of the baseline."""

    kind: Literal["baseline"] = "baseline"
    at: str
    config: AnyConfig
    config_hash: str
    trial: TrialRecord


class IterationRow(Frozen):
    """One turn of the loop."""

    kind: Literal["iteration"] = "iteration"
    iter: PositiveInt
    at: str
    proposer: ProposerRecord
    proposal: Proposal | None
    verdict: Verdict
    config: AnyConfig | None
    config_hash: str | None
    trials: tuple[TrialRecord, ...] = ()
    decision: Decision
    wall_s: NonNegative
    energy_wh: NonNegative | None = None


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


class EventRow(Frozen):
    """Something that happened to the campaign rather than in it."""

    kind: Literal["event"] = "event"
    at: str
    event: Literal["paused", "resumed", "interrupted", "fallback", "note"]
    why: Text
    trial_ids: tuple[str, ...] = ()
    """Trials that are in no other row and count for nothing."""


Row: TypeAlias = (
    CampaignRow
    | BaselineRow
    | IterationRow
    | StressRow
    | FinalistsRow
    | AttributionRow
    | LadderPlanRow
    | LadderPredictionRow
    | LadderRow
    | ConfirmRow
    | ConfirmedRow
    | CalibrationRow
    | CalibratedRow
    | EventRow
)

_ROW: TypeAdapter[Row] = TypeAdapter(Annotated[Row, Field(discriminator="kind")])


def trials_of(row: Row) -> tuple[TrialRecord, ...]:
    """The trials that a row records."""
    if isinstance(row, IterationRow):
        return row.trials
    return (row.trial,) if isinstance(row, BaselineRow | RowOfOneRun) else ()


def parse_row(line: str | bytes) -> Row:
    """The row in one line of a journal.

    :raises pydantic.ValidationError: on anything else.
    """
    return _ROW.validate_json(line)


def dump_row(row: Row) -> str:
    """One line of JSON, ``kind`` first, without a newline."""
    return row.model_dump_json(by_alias=True)
