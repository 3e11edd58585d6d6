"""Define proposals and the rails' verdicts as rows store them.

A proposal is untrusted text until a verdict allows it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import not_
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import core_schema, from_json

from autoresearch.safe_text import redact
from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Scalar


def _encodable(value: Any) -> Any:
    """Make text safe to store: replace lone surrogates by U+FFFD and redact the environment's
    secrets.

    A model can spell lone surrogates in JSON, but UTF-8 cannot encode them. A server may echo
    secrets.
    """
    if isinstance(value, str):
        if not value.isascii():
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return redact(value)
    return value


def _recordable(changes: Any) -> Any:
    """Replace NaN and infinities by their names, because JSON has no such numbers."""
    if not isinstance(changes, dict):
        return changes
    return {
        _encodable(knob): str(value)
        if isinstance(value, float) and not math.isfinite(value)
        else _encodable(value)
        for knob, value in changes.items()
    }


@dataclass(frozen=True, slots=True)
class _MadeSafe:
    """Applies a function to values from Python. Those from JSON were made safe when it was written,
    and calls for each field would take most of the time of reading a journal; see
    :func:`parse_safe`."""

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        schema = handler(source)
        return core_schema.json_or_python_schema(
            schema, core_schema.no_info_before_validator_function(self.function, schema)
        )


Text: TypeAlias = Annotated[str, _MadeSafe(_encodable)]
"""Text from any source, made safe to store."""
Changes: TypeAlias = Annotated[dict[str, Scalar], _MadeSafe(_recordable)]
"""Requested values by knob, valid or not, made safe to store."""

Parsed = TypeVar("Parsed")


def parse_safe(adapter: TypeAdapter[Parsed], line: str | bytes) -> Parsed:
    """Parse a line whose text was made safe when it was written.

    It is made safe again only if it holds a secret of this environment or numbers that JSON lacks,
    as after an edit or in a copy from elsewhere.

    :raises pydantic.ValidationError: if the line is not valid.
    """
    parsed = adapter.validate_json(line)
    said = line if isinstance(line, str) else line.decode()
    if "NaN" in said or "Infinity" in said or redact(said) != said:
        return adapter.validate_python(from_json(line))
    return parsed


RailName: TypeAlias = Literal[
    "schema", "menu", "range", "code", "cross", "memory", "novelty", "code_run"
]


class Proposal(Frozen):
    """New values for a few knobs of the reference, and the reason for them."""

    changes: Changes
    """New values by knob. If the rails passed the proposal, each differs from the reference's
    value."""
    reason: Text
    restated: Changes = Field(default_factory=dict, exclude_if=not_)
    """Knobs that the proposal set to their current value, so that nothing changed. Rows of schemas
    before 3 list them among the changes."""


class Verdict(Frozen):
    """The rails' verdict. ``why`` is one sentence, empty if the proposal is allowed."""

    allowed: bool
    rail: RailName | None = None
    why: Text = ""


MODEL = "llm"
"""Kind of a language model."""
SAMPLER = "sampler"
LIBRARY = "library"
"""Kind of the library of published ideas."""
Arm: TypeAlias = Literal["pick", "own", "code"]
"""How a proposal came about: a language model chose it from a slate or made its own changes, or the
turn was for code, by the model or the library."""


class Attempt(Frozen):
    """One raw exchange with a language model, valid or not."""

    raw: Text
    """Text of the reply as received, cut at 20,000 characters; ``truncated`` says whether it was
    cut."""
    truncated: bool = False
    mode: str = ""
    """How the request asked for the schema: ``json_schema``, ``guided_json``, … or ``none``."""
    finish_reason: Text | None = None
    verdict: Verdict | None = None
    error: Text | None = None
    """One sentence on a transport or protocol failure; there is then no verdict."""
    latency_s: NonNegative = 0
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    cost_usd: NonNegative | None = Field(None, exclude_if=lambda value: value is None)
    """Money that a command reported for it."""


class Prediction(Frozen):
    """A surrogate's predictions before a race, as differences of objectives from the reference."""

    delta: Finite
    sd: NonNegative
    slate_delta: Finite
    """Mean over the candidates that were shown: what a pick by chance would come to."""
    slate_sd: NonNegative
    """Standard deviation of the result of a pick by chance."""


class ModelIdea(Frozen):
    """Changes that a language model gave besides its choice."""

    changes: Changes
    reason: Text
    """Reason of the whole reply."""
    model: Text


class ProposerRecord(Frozen):
    """The proposer of an iteration, and the cost of its proposal."""

    kind: str
    """Kind of the proposer whose proposal was used: ``sampler``, ``random``, ``llm``,
    ``queued``, ``scripted``."""
    model: Text | None = None
    prompt_sha256: str | None = None
    attempts: tuple[Attempt, ...] = ()
    latency_s: NonNegative = 0
    overrode: Changes | None = None
    """The sampler's suggestion, which the language model saw and could override."""
    arm: Arm | None = Field(None, exclude_if=not_)
    expected: Finite | None = Field(None, exclude_if=lambda value: value is None)
    """Difference of objectives that the language model expected."""
    prediction: Prediction | None = Field(None, exclude_if=not_)
    """A surrogate's predictions, if a slate was drawn for a language model."""
    ideas: tuple[Changes, ...] = Field((), exclude_if=not_)
    """Further changes in the language model's reply, which become candidates of the search."""
    fallback: Text | None = None
    """Why a proposer other than the scheduled one made this proposal."""
    author: Text | None = Field(None, exclude_if=not_)
    """Author of a queued proposal; None if it was not queued."""
    queue_id: str | None = Field(None, exclude_if=not_)

    @property
    def name(self) -> str:
        """The kind, with the author of a queued proposal."""
        return f"{self.kind} by {self.author}" if self.author else self.kind

    @property
    def failed_kind(self) -> str:
        """Kind of the proposer that failed and was replaced. Random proposals replace the
        sampler's, and the sampler replaces the language model."""
        return SAMPLER if self.kind == "random" and not self.attempts else MODEL
