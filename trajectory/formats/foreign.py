"""What another tool's trajectory says, in types that promise no more than it does.

Such a file has no seeds, no bytes scored and seldom a whole config, so its runs are not trials of
ours and never enter a journal. They are kept, one JSON object a line, in ``imported.jsonl``: first
where they come from, then each run under the names that the source gave things.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from trajectory.proposals import Text

FOREIGN_SCHEMA = 1

FormatName: TypeAlias = Literal["journal", "imported", "single-knob", "results-tsv", "pi-jsonl"]
Measure: TypeAlias = Annotated[Text, Field(min_length=1, max_length=60)]
"""The name of a score; the lower is the better."""


MAX_SCORE = 1e100
"""No measure comes near it, and beyond it a difference squared is beyond any float."""
_FLOAT_BITS = 1023


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("is no plain value")  # noqa: TRY004 (pydantic reports it)
    if isinstance(value, int) and value.bit_length() > _FLOAT_BITS:
        raise ValueError("is a whole number beyond any float")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"is {value}, no number that JSON has")
    return value


Score: TypeAlias = Annotated[float, Field(gt=0, le=MAX_SCORE, allow_inf_nan=False, strict=True)]
"""A number as JSON has it: neither a text nor true."""


Plain: TypeAlias = Annotated[bool | int | Finite | Text | None, BeforeValidator(_plain)]
"""A value as JSON has it, that holds no others."""


class Skipped(Frozen):
    """A line of the source that was not taken in."""

    line: PositiveInt
    why: Text


class Provenance(Frozen):
    """Where an imported campaign comes from: the first line of its ``imported.jsonl``."""

    kind: Literal["imported"] = "imported"
    schema_: Annotated[int, Field(alias="schema")] = FOREIGN_SCHEMA
    format: FormatName
    source: Text
    """The file's path as it was given."""
    source_sha256: str
    imported_at: str
    """ISO 8601, UTC."""
    measure: Measure
    """What the runs' scores are; lower is better."""
    accept_delta_frac: Annotated[Finite, Field(strict=True)] | None = None
    """The single-knob loop kept what gained this fraction of the baseline's score."""
    skipped: tuple[Skipped, ...] = ()


class ForeignRun(Frozen):
    """One turn of another tool's loop."""

    kind: Literal["run"] = "run"
    line: PositiveInt
    """In the source."""
    iter: NonNegativeInt
    """As the source counts, else the place among its runs; 0 is a baseline measured before."""
    at: Text | None = None
    """As the source writes it."""
    name: Text | None = None
    """What stands for a config that is not given, such as a commit."""
    values: dict[str, Plain] | None = None
    """The config as far as the source gives it."""
    changes: dict[str, Plain] | None = None
    """Against the baseline."""
    is_baseline: bool = False
    reason: Text = ""
    status: Literal["measured", "failed", "refused", "no proposal", "paused"]
    score: Score | None = None
    """In the campaign's measure; there where ``measured``, and nowhere else."""
    action: Literal["keep", "discard", "none"] = "none"
    rail: Text | None = None
    """That refused it, in the source's words."""
    why: Text = ""
    """The reason for a failure, a refusal or a pause."""
    metrics: dict[str, Plain] = Field(default_factory=dict)
    """Whatever else was measured, under the source's names."""

    @model_validator(mode="after")
    def _scored_where_measured(self) -> Self:
        if (self.score is not None) != (self.status == "measured"):
            raise ValueError(f"a run that is {self.status} has the score {self.score}")
        if self.status == "measured" and self.config_key is None:
            raise ValueError("a measured run names no config")
        return self

    @property
    def config_key(self) -> str | None:
        """Equal for runs of one config; None where the source names none."""
        if self.values is not None:
            text = json.dumps(self.values, sort_keys=True, separators=(",", ":"))
            return hashlib.sha256(text.encode()).hexdigest()
        # One commit may hold several configs that only their descriptions tell apart.
        if self.name is None or self.reason in {"", self.name}:
            return self.name
        return f"{self.name} {self.reason}"


ForeignLine: TypeAlias = Provenance | ForeignRun
_LINE: TypeAdapter[ForeignLine] = TypeAdapter(Annotated[ForeignLine, Field(discriminator="kind")])


def parse_foreign(line: str | bytes) -> ForeignLine:
    """One line of an ``imported.jsonl``.

    :raises pydantic.ValidationError: on anything else.
    """
    return _LINE.validate_json(line)


def dump_foreign(line: ForeignLine) -> str:
    """One line of JSON without a newline."""
    return line.model_dump_json(by_alias=True)
