"""Provide specs of trials that run a command, and scripts for them."""

import sys
from pathlib import Path
from typing import Any

from trainer.schema import (
    Budget,
    Command,
    CommandConfig,
    CurveRule,
    Limits,
    Measure,
    ScoreRule,
    TrialSpec,
)

PATIENT_S = 100_000.0
"""Limit of a trial that a test does not time; the suite's own timeout ends a hang."""
SCORE = ScoreRule(pattern=r"val loss ([0-9.]+)")
CURVE = CurveRule(pattern=r"iter (\d+): loss ([0-9.]+)")


def command(**changes: Any) -> Command:
    """Return a command that prints its score, with any field changed."""
    fields: dict[str, Any] = {
        "argv": (sys.executable, "train.py"),
        "directory": "/nonexistent",
        "score": SCORE,
        "curve": CURVE,
        "measure": Measure(unit="loss"),
        **changes,
    }
    return Command(**fields)


def command_spec(
    *, values: dict[str, Any] | None = None, command: Command, **changes: Any
) -> TrialSpec:
    """Return the spec of a trial that runs the command; fields of its limits are passed by name."""
    limits = {name: changes.pop(name) for name in list(changes) if name in Limits.model_fields}
    if "limits" not in changes:
        changes["limits"] = Limits(**{"wall_s": PATIENT_S, **limits})
    fields: dict[str, Any] = {
        "trial_id": "0001-s1",
        "config": CommandConfig(values=values or {"lr": 0.1}),
        "seed": 1,
        "budget": Budget(amount=20),
        "horizon_steps": None,
        "command": command,
        **changes,
    }
    return TrialSpec(**fields)


def script(directory: Path, text: str, name: str = "train.py") -> Path:
    """Write a script into a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    return directory
