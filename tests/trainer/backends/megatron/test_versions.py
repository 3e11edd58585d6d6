"""Run the parity tests under the versions of NVIDIA's container: Megatron-Core 0.17 and Python
3.12.

The tests need both to be available on this machine.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT, python_3_12

MEGATRON = "megatron-core==0.17.0rc0"
"""Version in nvcr.io/nvidia/nemo:26.04.00."""
PARITY = [
    str(Path(__file__).with_name(f"test_{name}.py")) for name in ("backend", "refusals", "training")
]
WITHOUT_ITS_EXTRAS = ["pytest", "pytest-timeout", "psutil", "pydantic", "tokenizers", "landlockpy"]
"""Packages that the parity tests import, in addition to torch, numpy and Megatron-Core."""

pytestmark = [pytest.mark.versions, pytest.mark.timeout(3600)]


def pip(*arguments: str | Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def parity(python: str, *options: str, **variables: str) -> str:
    """Run the parity tests, which must pass; return the end of their output."""
    done = subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=900"),
            *(*options, *PARITY),
        ],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def passed_with_megatron(told: str) -> bool:
    """Return whether the tests that need Megatron-Core ran, rather than were skipped."""
    return "is not installed" not in told and "passed" in told


def test_parity_holds_under_megatron_core_0_17(tmp_path: Path) -> None:
    """The wheel requires Python 3.12 only for a helper that prepares data sets. The parts in use
    are pure Python and run on this version, too."""
    done = pip(
        *("download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.12"),
        *("--dest", tmp_path, MEGATRON),
    )
    if done.returncode != 0:
        pytest.skip(f"{MEGATRON} cannot be had: {done.stderr.strip()[-300:]}")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    which = (
        "from trainer.backends.megatron.backend import Trio; print(Trio.installed().megatron_core)"
    )
    told = subprocess.run(
        [sys.executable, "-c", which],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == MEGATRON.partition("==")[2]
    # A sandboxed trial reads this Python's own packages and ignores PYTHONPATH.
    told_too = parity(sys.executable, "-k=not sandbox", PYTHONPATH=environment["PYTHONPATH"])
    assert passed_with_megatron(told_too)


def test_parity_holds_under_python_3_12(tmp_path: Path) -> None:
    """The environment has the container's Python and Megatron-Core."""
    python = python_3_12()
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    inside = str(tmp_path / "venv" / "bin" / "python")
    torch = _without_cuda(inside)
    for packages in ([torch, "numpy", *WITHOUT_ITS_EXTRAS], ["--no-deps", MEGATRON]):
        done = pip("install", "--quiet", *packages, python=inside)
        assert done.returncode == 0, done.stderr
    assert passed_with_megatron(parity(inside, PYTHONPATH=str(ROOT)))


def _without_cuda(python: str) -> str:
    """Return the requirement of the torch wheel in a folder of files.

    The registry's torch would add gigabytes of CUDA, which pip downloads even for a dry run.
    """
    options = ["--dry-run", "--quiet", "--no-index", "--no-deps", "--report=-"]
    done = pip("install", *options, "torch", python=python)
    if done.returncode != 0:
        pytest.skip("no torch without CUDA for Python 3.12 (PIP_FIND_LINKS: its folder)")
    report: dict[str, Any] = json.loads(done.stdout)
    (found,) = report["install"]
    return f"torch=={found['metadata']['version']}"
