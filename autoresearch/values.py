"""Base types of values: bounded numbers, immutable records, and options of the command line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

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


# --- command-line options, described where their fields are declared -----------------------------


@dataclass(frozen=True, slots=True)
class AsOption:
    """Facts about an option beyond its field's type, bounds, default and description.

    It is part of the field's annotation. Only a field with a description can be set by a user.
    """

    flag: str | None = None
    """None: the field's name."""
    bounds: tuple[float | None, float | None] | None = None
    """The least and the most that a command accepts; None: the field's bounds."""
    none: str | None = None
    """Text of None in a TOML file; None: the file leaves the key out."""
    by_set: bool = False
    """Whether the field has no option of its own and is set with ``--set NAME=VALUE``."""
    built_in: bool = False
    """Whether only the built-in trainer has it, so that a command's campaign refuses it."""
    read: Callable[[str], Any] | None = None
    """Converts a person's text and raises ValueError if it cannot. None: plain types are parsed as
    such, others by their own validator."""


def option_facts(field: FieldInfo) -> AsOption:
    """Return the facts that a field's annotation holds, or the usual ones."""
    found = (said for said in field.metadata if isinstance(said, AsOption))
    return next(found, AsOption())


def built_in_flags(kind: type[BaseModel]) -> dict[str, str]:
    """Return the flags of the fields that only the built-in trainer has, by field."""
    facts = {name: option_facts(field) for name, field in kind.model_fields.items()}
    return {
        name: f"--set {name}" if each.by_set else each.flag or f"--{name.replace('_', '-')}"
        for name, each in facts.items()
        if each.built_in
    }


def set_fields(kind: type[BaseModel]) -> list[str]:
    """Return the names of the fields that ``--set`` sets."""
    return [name for name, field in kind.model_fields.items() if option_facts(field).by_set]


def toml_values(values: BaseModel) -> dict[str, Scalar]:
    """Return the values of a TOML table, as text where a field holds a value of several parts."""
    table: dict[str, Scalar] = {}
    for name, value in values:
        none = option_facts(type(values).model_fields[name]).none
        if value is not None:
            table[name] = str(value) if isinstance(value, BaseModel) else value
        elif none is not None:
            table[name] = none
    return table
