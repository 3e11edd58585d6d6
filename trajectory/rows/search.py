"""Define the row format's version, and rows of the search: campaign, baseline, iterations, events.

Decisions are defined here rather than in ``agent`` because the record outlives the code that
decided. A reader of a journal needs only these definitions.
"""

import math
from operator import not_
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AliasChoices,
    Field,
    JsonValue,
    model_validator,
)

from autoresearch.errors import CampaignError
from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
)
from autoresearch.words import json_text
from trainer.schema import (
    BPB,
    AnyConfig,
    CorpusInfo,
    Measure,
    Place,
    ScriptInfo,
    TrialFailed,
    TrialResult,
)
from trajectory.proposals import Proposal, ProposerRecord, Text, Verdict
from trajectory.rows.protocol import EvaluationProtocol

SCHEMA = 4
"""Version of the row format, in the first row of every journal.

Readers accept all older versions and refuse newer ones by that row. Version 2 added the kinds
``stress`` and ``finalists``. Version 3 added a proposal's ``restated``, and a decision's
``early_stopping_threshold`` and ``no_effect``. Version 4 added:

- the kinds ``attribution``, ``ladder_plan``, ``ladder_prediction``, ``ladder``, ``confirm``,
  ``confirmed``, ``calibration``, ``calibrated`` and ``space``;
- a result's ``texts`` and ``checkpoints_bpb``, and the event ``stopped``;
- the first row's ``z_drop``, ``reserve_holdout``, ``train_tokens``, ``cooldown_steps``,
  ``average`` and ``cudnn_attention``;
- campaigns of a command: ``script`` and ``measure`` instead of a corpus, their configs and results,
  an iteration's ``lanes`` and a trial's ``place``;
- a proposer's ``arm``, ``expected``, ``prediction``, ``author`` and ``queue_id``; an attempt's
  ``cost_usd``.

Fields named ``…objective``, and every ``delta``, hold *objectives*
(:class:`trainer.schema.Measure`): bits per byte for the built-in trainer, and for a command its
score, or the negative of a score to maximize. Fields named ``…_bpb`` hold bits per byte.
"""

_Z_DROP_BEFORE_4 = 1.0


_GONE = ("mixed_devices", "device_kinds", "compile")
"""Settings in the first row of earlier versions that nothing reads any more."""
_RENAMED = {"first_drop": "early_stopping_threshold", "hold_back": "reserve_holdout"}
"""Settings in the first row under their former names."""


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


class Decision(Frozen):
    """A decision to keep or discard a candidate, with all the numbers behind it.

    ``delta`` is the estimate minus the reference, in objectives: negative is better.
    """

    action: Literal["keep", "discard", "none"]
    """``none``: nothing was trained."""
    reference_hash: str | None = None
    reference_objective: Finite | None = Field(
        None, validation_alias=AliasChoices("reference_objective", "reference_bpb")
    )
    """Mean objective of the reference on the common seeds; since 0.4 predicted from all its runs
    (:mod:`agent.judge`)."""
    estimate_objective: Finite | None = Field(
        None, validation_alias=AliasChoices("estimate_objective", "estimate_bpb")
    )
    """Mean objective of the candidate on the same seeds."""
    delta: Finite | None = None
    stderr: NonNegative | None = None
    sigma: NonNegative | None = None
    """Standard deviation of one paired difference; ``stderr`` is ``sigma / sqrt(pairs)`` or
    less."""
    pairs: NonNegativeInt = 0
    """Common seeds on which both configs were measured."""
    pairs_ss: NonNegative = 0
    """Sum of squared deviations of the paired differences from their mean. It measures the noise of
    a race, pooled over races with ``pairs - 1`` degrees of freedom each."""
    z: Finite | None = None
    """``-delta / stderr``, which the judge compares with ``z_keep``."""
    z_keep: Finite | None = None
    """This and the next three are the rules behind the decision (:class:`trajectory.rows.Rules`),
    without today's bounds."""
    z_drop: Finite | None = None
    early_stopping_threshold: Finite | None = Field(
        None,
        validation_alias=AliasChoices("early_stopping_threshold", "first_drop"),
        exclude_if=lambda value: value is None,
    )
    max_runs: NonNegativeInt | None = None
    no_effect: bool = Field(False, exclude_if=not_)
    """Whether the candidate trained exactly like its reference, so that its changes have no
    effect."""
    explanation: Text = ""


class _Origin(Frozen):
    """The first fields of a journal: its format, and the campaign's menu and text."""

    kind: Literal["campaign"] = "campaign"
    schema_: Annotated[int, Field(alias="schema")] = SCHEMA
    id: str
    created_at: str
    """ISO 8601, UTC."""
    menu_name: str
    menu_sha256: str
    menu_toml: str
    """The whole menu, so that the campaign is readable without the original file."""
    corpus: CorpusInfo | None = Field(None, exclude_if=not_)
    """The corpus; None if a command brings its own text. Like every field whose default means that
    nothing was chosen, it is then left out of the row."""
    script: ScriptInfo | None = Field(None, exclude_if=not_)
    """The command that trains; None for the built-in trainer."""
    measure: Measure | None = Field(None, exclude_if=not_)
    """Unit of the command's score."""


class CampaignRow(EvaluationProtocol, _Origin):
    """The first row: the conditions under which every later row was measured."""

    train_tokens: PositiveInt | None = Field(None, exclude_if=not_)
    """Number of the train split's first tokens that trials train on, with ``reserve_holdout``."""
    baseline_seeds: PositiveInt
    z_keep: NonNegative
    max_runs: PositiveInt
    """Largest number of seeds in a candidate's race."""
    early_stopping_threshold: Finite
    """Loss on the first pair that ends a race."""
    z_drop: Finite
    """Futility bound: standard errors of optimism before a race is abandoned."""
    max_changes: PositiveInt
    sandbox: str
    """The sandbox that confines trials, as it describes itself."""
    versions: dict[str, str]
    hardware: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _upgraded(cls, said: Any) -> Any:
        """Return a first row of any format, with the rules that campaigns of its version followed.

        Every other field of a later format has a default that describes older campaigns. Settings
        that nothing reads any more are left out, and renamed ones get their present names. Fields
        of other rows declare their former names themselves, as validation aliases.
        """
        if not isinstance(said, dict):
            return said
        said = {
            _RENAMED.get(name, name): value for name, value in said.items() if name not in _GONE
        }
        if "z_keep" not in said or "max_runs" not in said:
            return said
        z_drop = said.get("z_drop", _Z_DROP_BEFORE_4)
        try:
            threshold = z_drop - said["z_keep"] / math.sqrt(said["max_runs"])
        except (TypeError, ValueError, ZeroDivisionError):  # validation will refuse the row
            return said
        return {"z_drop": z_drop, "early_stopping_threshold": threshold} | said

    @property
    def text(self) -> CorpusInfo:
        """The corpus.

        :raises CampaignError: if a command brings its own text, about which nothing is known.
        """
        if self.corpus is None:
            raise CampaignError(
                f"the campaign {self.menu_name} trains with a command, whose text is unknown; "
                "this is for campaigns of the built-in trainer"
            )
        return self.corpus

    @property
    def measured_in(self) -> Measure:
        """Unit of every score of the campaign."""
        return self.measure or BPB


class BaselineRow(Frozen):
    """One seed of the baseline."""

    kind: Literal["baseline"] = "baseline"
    at: str
    config: AnyConfig
    config_hash: str
    trial: TrialRecord


class IterationRow(Frozen):
    """One iteration of the loop."""

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
    lanes: PositiveInt | None = Field(None, exclude_if=not_)
    """Number of trials that could run at once, if more than one. ``wall_s`` of such rows overlap,
    and the rows are in the order in which the iterations ended."""


class SpaceRow(Frozen):
    """An edit of the campaign's space; everything measured before stays evidence."""

    kind: Literal["space"] = "space"
    at: str
    """When it was asked for, ISO 8601."""
    author: Text
    knobs: dict[str, dict[str, JsonValue]]
    """Keys of the menu's tables that it replaces, by knob, and ``frozen``."""

    def __str__(self) -> str:
        """Return ``lr.low = 0.001, lr.high = 0.01``."""
        return ", ".join(
            f"{name}.{key} = {json_text(value)}"
            for name, table in self.knobs.items()
            for key, value in table.items()
        )


class EventRow(Frozen):
    """An event that affected the campaign, outside its iterations."""

    kind: Literal["event"] = "event"
    at: str
    event: Literal["paused", "resumed", "interrupted", "not_needed", "fallback", "note", "stopped"]
    """``stopped``: an error ended the session; ``why`` says which. ``not_needed``: a trial that an
    idle lane ran in advance, in journals of version 0.3.0 and before."""
    why: Text
    trial_ids: tuple[str, ...] = ()
    """Trials that are in no other row and are not counted."""
