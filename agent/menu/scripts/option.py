"""One thing that a training script lets a person set."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autoresearch.values import Scalar


@dataclass(frozen=True, slots=True)
class Option:
    """What a script says of one of its options."""

    name: str
    """An identifier: the knob's name in the menu."""
    line: int
    """Where the script says it, from 1."""
    default: Scalar | None = None
    argument: str = ""
    """How the command passes it, such as ``--lr={lr}``, or ``{amp:--amp}`` for a switch; empty
    where it is passed otherwise."""
    variable: str = ""
    """The environment's variable that passes it."""
    choices: tuple[Scalar, ...] = ()
    """The values that the script takes, as far as it says or shows."""
    low: float | None = None
    high: float | None = None
    doc: str = ""
    required: bool = False
    command: str = ""
    """The subcommand it belongs to."""
    left: str = ""
    """Why it cannot be set from outside without a person's help; empty where it can."""


def identifier(text: str) -> str:
    """``--learning-rate`` as ``learning_rate``."""
    name = re.sub(r"\W", "_", text.lstrip("-"), flags=re.ASCII)
    return f"_{name}" if not name or name[0].isdigit() else name


def passed(flag: str, name: str) -> str:
    """How a flag takes a value in one word: ``--lr={lr}``, ``-l{lr}``."""
    return f"{flag}={{{name}}}" if flag.startswith("--") else f"{flag}{{{name}}}"


def switched(name: str, yes: str, no: str = "") -> str:
    """How a truth is passed by a word: ``{bias:--bias|--no-bias}``, ``{amp:--amp}``."""
    return f"{{{name}:{yes}|{no}}}" if no else f"{{{name}:{yes}}}"


def typed(value: Scalar | None, kind: str) -> Scalar | None:
    """Return a value as a script that declares its type takes it: 1 of a float is 1.0, 1e3 of an
    int is 1000."""
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
    """The script's choices in its declared type."""
    return tuple(one for one in (typed(value, kind) for value in values) if one is not None)
