"""What was proposed and what the rails said of it, as rows say it: always untrusted text until a
verdict allows it."""

from __future__ import annotations

import math
from operator import not_
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from autoresearch.redaction import redact
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Scalar


def _encodable(value: Any) -> Any:
    """Lone surrogates, which a model can spell in JSON and UTF-8 cannot, become U+FFFD; secrets of
    the environment, which a server may echo, are redacted."""
    if isinstance(value, str):
        return redact(value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def _recordable(changes: Any) -> Any:
    """NaN and infinities become the words for them: JSON has no such numbers."""
    if not isinstance(changes, dict):
        return changes
    return {
        _encodable(knob): str(value)
        if isinstance(value, float) and not math.isfinite(value)
        else _encodable(value)
        for knob, value in changes.items()
    }


Text: TypeAlias = Annotated[str, BeforeValidator(_encodable)]
"""Text from anywhere, made fit to be written down."""
Changes: TypeAlias = Annotated[dict[str, Scalar], BeforeValidator(_recordable)]
"""Knob to value as somebody asked for it, sensible or not, made fit to be written down."""

RailName: TypeAlias = Literal["schema", "menu", "range", "cross", "memory", "novelty"]


class Proposal(Frozen):
    """What a proposer wants: a few knobs of the reference set to other values, and why."""

    changes: Changes
    """Each sets a knob to another value than the reference's, where the rails passed it."""
    reason: Text
    restated: Changes = Field(default_factory=dict, exclude_if=not_)
    """Knobs that it set to the value they have already, and that therefore were no change. In rows
    that a schema before 3 wrote they stand among the changes."""

    @property
    def raw(self) -> str:
        """What the rails read it from: a reply that makes this proposal."""
        return self.model_dump_json(include={"changes", "reason"})


class Verdict(Frozen):
    """What the rails said. ``why`` is one sentence; empty when allowed."""

    allowed: bool
    rail: RailName | None = None
    why: Text = ""


MODEL = "llm"
"""The kind of a language model."""
SAMPLER = "sampler"


class Attempt(Frozen):
    """One exchange with an LLM, raw, whatever it was worth."""

    raw: Text
    """The reply's text as received (cut at 20,000 characters, and then ``truncated`` is true)."""
    truncated: bool = False
    mode: str = ""
    """How the schema was asked for: ``json_schema``, ``guided_json``, … or ``none``."""
    finish_reason: Text | None = None
    verdict: Verdict | None = None
    error: Text | None = None
    """Transport or protocol failure, one sentence; then there is no verdict."""
    latency_s: NonNegative = 0
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None


class ProposerRecord(Frozen):
    """Who proposed, and what it took."""

    kind: str
    """Who made the proposal that was used: ``sampler``, ``random``, ``llm``, ``scripted``."""
    model: Text | None = None
    prompt_sha256: str | None = None
    attempts: tuple[Attempt, ...] = ()
    latency_s: NonNegative = 0
    overrode: Changes | None = None
    """The sampler's suggestion that the LLM saw and was free to override."""
    fallback: Text | None = None
    """Why another proposer than the one whose turn it was made this proposal."""

    @property
    def failed_kind(self) -> str:
        """Return the kind of the proposer that another stood in for: uniform chance stands in for
        the sampler, and the sampler for the language model."""
        return SAMPLER if self.kind == "random" and not self.attempts else MODEL
