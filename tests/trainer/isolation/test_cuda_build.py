"""Run the tests of how CUDA starts under a CUDA build of torch 2.11, as NVIDIA's container has it.

A build for CPUs never calls a driver, so under it these tests cannot fail as under CUDA.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

TORCH = "torch==2.11.0"
NEEDED = "hypothesis landlockpy numpy psutil pydantic pytest pytest-timeout tokenizers".split()
STARTS = [
    "tests/trainer/isolation/test_before_the_fork.py",
    "tests/trainer/isolation/test_cuda_start.py",
    # Its Triton is 3.6, which builds a launcher for every kernel's signature.
    "tests/trainer/backends/kernels/test_sandboxed.py",
]

pytestmark = [pytest.mark.versions, pytest.mark.timeout(1800)]


def test_cuda_starts_in_the_trial_alone_under_a_cuda_build(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*install, TORCH, *NEEDED], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{TORCH} cannot be installed: {done.stderr.strip()[-300:]}")
    which = [python, "-c", "import torch; print(torch.version.cuda)"]
    built = subprocess.run(which, capture_output=True, text=True, check=True).stdout.strip()
    if built == "None":
        pytest.skip(f"{TORCH} is a build without CUDA here")
    tests = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *STARTS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout[-6000:] + tests.stderr[-2000:]
