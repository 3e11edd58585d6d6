"""Define an option that a training script offers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autoresearch.values import Scalar


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a script."""

    name: str
    """Identifier that names the knob in the menu."""
    line: int
    """Line of its definition, from 1."""
    default: Scalar | None = None
    argument: str = ""
    """Form in the command, such as ``--lr={lr}``, or ``{amp:--amp}`` for a switch; empty if it is
    passed otherwise."""
    variable: str = ""
    """Environment variable that passes it."""
    choices: tuple[Scalar, ...] = ()
    """Values that the script accepts, as far as known."""
    low: float | None = None
    high: float | None = None
    doc: str = ""
    required: bool = False
    command: str = ""
    """Subcommand that it belongs to."""
    left: str = ""
    """Why it cannot be set from outside without a person's help; empty if it can."""


def identifier(text: str) -> str:
    """Return ``--learning-rate`` as ``learning_rate``."""
    name = re.sub(r"\W", "_", text.lstrip("-"), flags=re.ASCII)
    return f"_{name}" if not name or name[0].isdigit() else name


def passed(flag: str, name: str) -> str:
    """Return how a flag takes a value in one word: ``--lr={lr}``, ``-l{lr}``."""
    return f"{flag}={{{name}}}" if flag.startswith("--") else f"{flag}{{{name}}}"


def switched(name: str, yes: str, no: str = "") -> str:
    """Return how a boolean is passed: ``{bias:--bias|--no-bias}``, ``{amp:--amp}``."""
    return f"{{{name}:{yes}|{no}}}" if no else f"{{{name}:{yes}}}"


def typed(value: Scalar | None, kind: str) -> Scalar | None:
    """Return a value converted to the script's declared type: 1 becomes 1.0 for a float, 1e3
    becomes 1000 for an int."""
    if isinstance(value, int) and not isinstance(value, bool) and kind == "float":
        return float(value)
    if isinstance(value, float) and kind == "int" and value.is_integer():
        return int(value)
    if isinstance(value, str) and kind in {"int", "float"}:
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
    return value


def typed_choices(values: tuple[Scalar, ...], kind: str) -> tuple[Scalar, ...]:
    """Return the script's choices in its declared type."""
    return tuple(one for one in (typed(value, kind) for value in values) if one is not None)
