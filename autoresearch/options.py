"""Describe command-line options where their fields are declared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from autoresearch.values import Scalar


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
