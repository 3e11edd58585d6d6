"""Provide the places of the repository's own files, and another Python, for tests that use them."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NIGHT = ROOT / "tests" / "support" / "night"
"""A campaign of 100 iterations on cpu-tiny, with its confirmation and a stress test."""


def python_3_12() -> str:
    """Return a Python 3.12 that starts, or skip the test."""
    found = shutil.which("python3.12")
    candidates = [] if found is None else [found]
    for pattern in (".pyenv/versions/3.12.*", ".local/share/uv/python/cpython-3.12.*"):
        candidates += map(str, sorted(Path.home().glob(f"{pattern}/bin/python3.12")))
    for candidate in candidates:
        tried = subprocess.run([candidate, "-c", "import venv"], check=False, capture_output=True)
        if tried.returncode == 0:
            return candidate
    pytest.skip("there is no Python 3.12 (Ubuntu 24.04: python3.12-venv; uv python install 3.12)")
