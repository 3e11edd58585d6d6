"""What a command is told of one trial: its words, its variables, its file of values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter

from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from trainer.spec import Command, TrialSpec

PREFIX = "AR_"
"""Of the variables that hold values: ``AR_LR``."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A command with everything said."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """Beside what every trial has."""
    values: tuple[str, str] | None = None
    """Name and text of the file of values, where they are sent in one."""
    constants: dict[str, Scalar] = field(default_factory=dict)
    """Of the script, where they are rewritten."""


def filled(spec: TrialSpec, command: Command, out: Path, threads: int) -> Filled:
    """The command of one trial.

    :param out: the trial's directory, as the command is to know it.
    :raises SpecError: where it asks for what the spec does not say.
    """
    known: dict[str, Scalar] = {**spec.config.said, **_built_in(spec, out, threads)}
    values = None
    if command.sent_by in {"json", "toml"}:
        name = f"autoresearch-values.{command.sent_by}"
        values = (name, (_json if command.sent_by == "json" else _toml)(known))
        known["values"] = str(out / name)
    env = {name: _filled(text, known) for name, text in command.env}
    if command.sent_by == "env":
        sent = {f"{PREFIX}{name.upper()}": _text(value) for name, value in known.items()}
        env = {**sent, **env}
    constants: dict[str, Scalar] = {}
    if command.edited is not None:
        constants = {**spec.config.said, **{n: _whole(text, known) for n, text in command.edits}}
    return Filled(tuple(_filled(word, known) for word in command.argv), env, values, constants)


def _built_in(spec: TrialSpec, out: Path, threads: int) -> dict[str, Scalar]:
    told: dict[str, Scalar] = {
        "out": str(out),
        "seed": spec.seed,
        "threads": threads,
        "device": spec.device,
    }
    if spec.budget.unit != "run":
        amount = spec.budget.amount
        told[spec.budget.unit] = int(amount) if amount == int(amount) else amount
    horizon = spec.horizon_steps or spec.steps
    if horizon is not None:
        told["horizon"] = horizon
    return told


def _filled(text: str, known: Mapping[str, Scalar]) -> str:
    parts = []
    for literal, name, _, _ in Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            if name not in known:
                raise SpecError(
                    f"the command asks for {{{name}}}, which this run has none of; its budget may "
                    "be in another unit"
                )
            parts.append(_text(known[name]))
    return "".join(parts)


def _whole(text: str, known: Mapping[str, Scalar]) -> Scalar:
    """A value as it is where a placeholder is all of the text, and text otherwise."""
    name = text[1:-1] if text.startswith("{") and text.endswith("}") else ""
    return known[name] if name in known else _filled(text, known)


def _text(value: Scalar) -> str:
    """As Python writes it, which is what argparse, click and configurators of scripts read."""
    return str(value)


def _json(known: Mapping[str, Scalar]) -> str:
    return json.dumps(known, indent=1) + "\n"


def _toml(known: Mapping[str, Scalar]) -> str:
    # A JSON string, number or boolean is the same TOML value, but for a character it leaves as is.
    lines = (f"{name} = {json.dumps(value)}" for name, value in known.items())
    return "\n".join(lines) + "\n"
