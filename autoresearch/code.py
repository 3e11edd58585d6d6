"""Locate this product's code and run its modules in other processes."""

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` from :func:`package_root`.

    A checkout must come first on sys.path; installed packages must not come before the standard
    library. Started in any other directory, Python would import the packages of whoever made it.
    """
    installed = package_root().name in {"site-packages", "dist-packages"}
    return [sys.executable, *(["-P"] if installed else []), "-m", module, *arguments]


def library_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of an installed library, from any directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def code_identity() -> str:
    """Return the version and a hash of all code that measures. Equal identities run equal code."""
    root, digest = package_root(), hashlib.sha256()
    for room in ("autoresearch", "trainer"):
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return f"{installed_version('autoresearch')} ({digest.hexdigest()[:12]})"


def installed_version(package: str) -> str:
    """Return the version of an installed package without importing it, or ``none``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def package_root() -> Path:
    """Return the directory that all packages are imported from."""
    return Path(__file__).parent.parent
