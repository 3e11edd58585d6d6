"""This product's own code: where it lies, and how another process runs a module of it."""

from __future__ import annotations

import sys
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` of this very code, in :func:`package_root`.

    A checkout must come first on sys.path; installed packages must not come before the standard
    library.
    """
    installed = package_root().name in {"site-packages", "dist-packages"}
    return [sys.executable, *(["-P"] if installed else []), "-m", module, *arguments]


def package_root() -> Path:
    """The directory that every room is imported from."""
    return Path(__file__).parent.parent
