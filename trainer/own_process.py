"""A question answered by a module of this package in a process that then ends.

For what the asker must not hold: a CUDA context, which takes hundreds of megabytes of a memory that
a unified machine shares, and which no process forked later could use.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from trainer.sandbox import allowed_environment

_Answer = TypeVar("_Answer", bound=BaseModel)


class NoAnswer(Exception):
    """The process gave none; the message is its last line, or how it ended."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` of this very package, in :func:`package_root`.

    A checkout must come first on sys.path; installed packages must not come before the standard
    library.
    """
    installed = package_root().name in {"site-packages", "dist-packages"}
    return [sys.executable, *(["-P"] if installed else []), "-m", module, *arguments]


def package_root() -> Path:
    """The directory that this package is imported from."""
    return Path(__file__).parent.parent


def ask(answer: type[_Answer], module: str, *arguments: str, patience_s: float) -> _Answer:
    """What ``python -m module arguments…`` prints, which is an ``answer`` in JSON.

    :raises NoAnswer: where it prints anything else, or takes longer.
    """
    try:
        ended = subprocess.run(
            module_command(module, *arguments),
            env=allowed_environment(),
            cwd=package_root(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"no answer within {patience_s:g} s") from error
    except OSError as error:
        raise NoAnswer(f"{sys.executable} cannot be started: {error.strerror}") from error
    try:
        return answer.model_validate_json(ended.stdout)
    except ValidationError as error:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise NoAnswer(said[-1][:300]) from error
