"""What the doctor says of Megatron-Core and of compiling."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.doctor import compilation, examine, megatron
from agent.settings import Environment
from tests.support.stub_cuda import StubMachine, build_stub, make_machine
from trainer.backends.versions import Trio


@pytest.mark.parametrize(
    ("trio", "state", "found"),
    [
        (Trio("2.13.0", None, None), "note", "not installed"),
        (Trio("2.13.0", "0.16.1", None), "good", "megatron-core 0.16.1, no transformer-engine"),
        (Trio("2.13.0", "0.16.1", "2.11.0"), "good", "transformer-engine 2.11.0"),
        (Trio("2.13.0", "0.17.0", "2.9.0"), "note", "does not work with transformer-engine 2.9.0"),
        (Trio("2.13.0", "0.15.0", None), "note", "is older than any"),
    ],
)
def test_the_trio_is_judged_by_what_is_installed(trio: Trio, state: str, found: str) -> None:
    check = megatron(trio)
    assert check.state == state
    assert found in check.found


def test_a_missing_compiler_is_named() -> None:
    assert compilation(None).state == "good"
    check = compilation("Triton")
    assert check.state == "note", "trials run without it"
    assert "needs Triton" in check.found


def test_compiling_is_asked_about_where_there_is_a_gpu(tmp_path: Path) -> None:
    names = [check.name for check in examine(Environment(data_dir=tmp_path), tmp_path)]
    assert names.index("device") < names.index("megatron") < names.index("sandbox")
    assert ("compiler" in names) == torch.cuda.is_available()


def doctor_on(machine: StubMachine, tmp_path: Path, **told: str) -> tuple[int, dict[str, Any]]:
    """Run the command where the stand-in for libcuda is found; its exit code and device check."""
    environ = {**machine.environ(**told), "AUTORESEARCH_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-c", "from agent.cli import main; main()", "doctor", "--json"]
    ended = subprocess.run(
        [*command, "--runs", str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    checks = json.loads(ended.stdout)["checks"]
    return ended.returncode, next(check for check in checks if check["name"] == "device")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to ask")
@pytest.mark.parametrize(
    ("ends", "state", "found"),
    [
        ("304", "bad", "cuInit returned 304 (CUDA_ERROR_OPERATING_SYSTEM): the system refused"),
        ("100", "note", "cuInit returned 100 (CUDA_ERROR_NO_DEVICE): the driver sees no GPU"),
        ("segv", "bad", "CUDA did not start on cuda (killed by SIGSEGV)"),
        ("0", "note", "is a build without CUDA; install one"),
    ],
)
def test_the_doctor_starts_cuda_in_the_sandbox(
    ends: str, state: str, found: str, tmp_path: Path
) -> None:
    """A torch without CUDA, as here, is the last thing to stand in the way."""
    (tmp_path / "library").mkdir()
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    code, check = doctor_on(machine, tmp_path, ends=ends)
    assert (check["state"], code) == (state, 1 if state == "bad" else 0)
    assert found in check["found"]
