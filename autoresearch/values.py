"""Base types of values: bounded numbers and immutable records."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from autoresearch.safe_text import plain

Scalar: TypeAlias = bool | int | float | str
"""Value of a knob."""

PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


PlainText = Annotated[str, AfterValidator(plain)]
"""Untrusted text to show: one line of printable characters."""


class Frozen(BaseModel):
    """Immutable, comparable value without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def explain(error: ValidationError) -> str:
    """Return a pydantic error as one clause: the field, what is wrong, the value seen."""
    clauses = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        given = item["input"]
        if isinstance(given, bytes):
            given = given.decode("utf-8", "backslashreplace")
        seen = "" if item["type"] in {"missing", "value_error"} else f" (got {given!r:.80})"
        clauses.append(f"{where}: {message}{seen}" if where else f"{message}{seen}")
    return "; ".join(clauses)
