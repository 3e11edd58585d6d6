"""Run programs."""

import subprocess
from pathlib import Path
from typing import Any


def finished(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Return the exit code, the output and the errors of a program, as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
