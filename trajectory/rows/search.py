"""Rows of the search itself: the campaign, its baseline, its iterations, what befell it.

Decisions are defined here rather than in ``agent`` because the record outlives the code that
decided: whoever reads a journal needs these and nothing else.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
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
from trainer.spec import (
    BPB,
    AnyConfig,
    Averaging,
    Budget,
    CorpusInfo,
    Measure,
    ScriptInfo,
)
from trajectory.proposals import Proposal, ProposerRecord, Text, Verdict
from trajectory.rows.schema import SCHEMA, upgraded
from trajectory.rows.trial import TrialRecord
from trajectory.rules import RuleValues, with_rules_as_one, with_rules_by_name


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
    rules: RuleValues = Field(default_factory=dict)
    """The rules it was judged by. In a row each stands under its own name."""
    no_effect: bool = Field(False, exclude_if=not_)
    """The candidate trained exactly as its reference did: what it changes does nothing there."""
    explanation: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _rules_are_one_value(cls, said: Any) -> Any:
        return with_rules_as_one(said) if isinstance(said, dict) else said

    @model_serializer(mode="wrap")
    def _rules_by_name(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return with_rules_by_name(write(self))


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
    corpus: CorpusInfo | None = Field(None, exclude_if=not_)
    """None where a command brings its own text. Like every field with a default that means nothing
    was chosen, it is left out of the row then."""
    script: ScriptInfo | None = Field(None, exclude_if=not_)
    """The command that trains; None where the built-in trainer does."""
    measure: Measure | None = Field(None, exclude_if=not_)
    """The unit of the command's score."""
    budget: Budget
    horizon_steps: PositiveInt | None
    cooldown_steps: NonNegativeInt = Field(0, exclude_if=not_)
    """This and ``average`` as a trial's spec has them."""
    average: Averaging | None = Field(None, exclude_if=not_)
    backend: str
    device: str
    compile: bool = False
    cudnn_attention: bool = Field(False, exclude_if=not_)
    """As a trial's spec has it."""
    hold_back: bool = Field(False, exclude_if=not_)
    """Trials train without the documents that a confirmation sets aside to score."""
    train_tokens: PositiveInt | None = Field(None, exclude_if=not_)
    """How much of the train split its trials train on, from the first on, where they hold back."""
    reference: Literal["incumbent", "baseline"]
    baseline_seeds: PositiveInt
    seed: NonNegativeInt
    """Root of every random choice the campaign makes."""
    z_keep: NonNegative
    max_runs: PositiveInt
    """Most seeds a candidate races over."""
    first_drop: Finite
    """The loss on the first pair that ends a race."""
    z_drop: Finite
    """Standard errors of optimism before a race is abandoned."""
    max_changes: PositiveInt
    sandbox: str
    """How trials are confined, as the sandbox describes itself."""
    versions: dict[str, str]
    hardware: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _upgraded(cls, said: Any) -> Any:
        return upgraded(said) if isinstance(said, dict) else said

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
    lanes: PositiveInt | None = Field(None, exclude_if=not_)
    """Trials that ran at once, where these were several. ``wall_s`` of such rows overlap, and they
    stand in the order in which the iterations ended."""


class EventRow(Frozen):
    """Something that happened to the campaign rather than in it."""

    kind: Literal["event"] = "event"
    at: str
    event: Literal["paused", "resumed", "interrupted", "not_needed", "fallback", "note"]
    why: Text
    trial_ids: tuple[str, ...] = ()
    """Trials that are in no other row and count for nothing."""
