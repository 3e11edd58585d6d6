"""Ask a module of this package a question in a short-lived process.

This is for what the caller must not hold: a CUDA context, which takes hundreds of megabytes of a
unified machine's memory, and which prevents later forks from using CUDA.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from autoresearch.code import module_command, package_root
from autoresearch.errors import AutoresearchError
from trainer.machine.environment import allowed_environment

_Answer = TypeVar("_Answer", bound=BaseModel)


class NoAnswer(Exception):
    """The process gave no answer; the message is its last line, or how it ended."""


def ask(answer: type[_Answer], module: str, *arguments: str, patience_s: float) -> _Answer:
    """Return what ``python -m module arguments…`` prints, parsed as an ``answer`` in JSON.

    :raises NoAnswer: if it prints anything else, or takes longer.
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


def reply(answer: Callable[[], BaseModel]) -> int:
    """Print what ``answer`` returns as JSON, or in one line why it fails; return the exit code.

    torch raises RuntimeError, AssertionError and ValueError without the device or memory.
    """
    try:
        text = answer().model_dump_json()
    except (AutoresearchError, RuntimeError, AssertionError, ValueError) as error:
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return 1
    sys.stdout.write(text + "\n")
    return 0
