"""CUDA's driver starts where a script starts it: in the command, in its child and its grandchild.

The stand-in (tests/support/stub_libcuda.c) makes the calls of the real library, in whichever
process loads it, and returns 304 if one of them is refused.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import command, command_spec, script
from tests.support.places import ROOT
from tests.support.stub_cuda import StubMachine, make_machine
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import CommandOk, TrialFailed

HERE = Layers.detect()
SYSTEM_PYTHON = Path("/usr/bin/python3")
START = """
import ctypes, subprocess, sys
depth = int(sys.argv[1])
if depth:
    words = [sys.executable, __file__, str(depth - 1)]
    sys.exit(subprocess.run(words).returncode)
code = ctypes.CDLL("libcuda.so.1").cuInit(0)
print("val loss", code)
"""
WORKERS = """
import ctypes, multiprocessing, sys

def start(number):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        print("val loss", sum(pool.map(start, range(2), chunksize=1)))
"""

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 5 or not HERE.seccomp, reason="this kernel cannot keep all promises"
)
needs_world = pytest.mark.skipif(not HERE.world, reason="this machine allows no namespaces")


@pytest.fixture(scope="module", params=[pytest.param(True, marks=needs_world), False])
def world(request: pytest.FixtureRequest) -> bool:
    """Whether commands get a world of their own."""
    return bool(request.param)


@pytest.fixture(scope="module")
def executor(gpu_machine: StubMachine, world: bool) -> Iterator[LocalExecutor]:
    with LocalExecutor(
        entry=COMMAND_ENTRY,
        environ=gpu_machine.environ(),
        root=gpu_machine.root,
        layers=replace(HERE, world=world),
    ) as executor:
        yield executor


def result_of(executor: LocalExecutor, place: Path, text: str, *words: str, **fields: Any) -> Any:
    directory = script(place / "own", text)
    argv = (fields.pop("python", sys.executable), "train.py", *words)
    told = command(argv=argv, directory=str(directory), **fields)
    trial = place / "campaign" / "trials" / "t000001"
    return executor.run(command_spec(command=told, device="cuda"), trial).result


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_driver_starts_in_the_command_and_below_it(
    executor: LocalExecutor, world: bool, tmp_path: Path, depth: int
) -> None:
    """Without namespaces only the confined process itself may name its threads."""
    result = result_of(executor, tmp_path, START, str(depth))
    assert isinstance(result, CommandOk), result
    assert result.score == (0 if world or depth == 0 else 304)


def test_the_driver_starts_in_a_function_that_a_fork_calls(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    result = result_of(executor, tmp_path, START, "0", main="__main__")
    assert isinstance(result, CommandOk), result
    assert result.score == 0


def test_the_driver_starts_in_spawned_workers(
    executor: LocalExecutor, world: bool, tmp_path: Path
) -> None:
    result = result_of(executor, tmp_path, WORKERS, shared_memory=not world)
    assert isinstance(result, CommandOk), result
    assert (result.score == 0) == world


def test_a_refused_call_is_304(gpu_machine: StubMachine, world: bool, tmp_path: Path) -> None:
    """The stand-in notices: what a trial may not write fails its start."""
    with LocalExecutor(
        entry=COMMAND_ENTRY,
        environ=gpu_machine.environ(writes=str(tmp_path / "closed")),
        root=gpu_machine.root,
        layers=replace(HERE, world=world),
    ) as executor:
        result = result_of(executor, tmp_path, START, "0")
    assert isinstance(result, CommandOk), result
    assert result.score == 304


AS_USER = """
import json, sys
from dataclasses import replace
from pathlib import Path
from tests.support.ordinary_user import become
from tests.trainer.isolation import test_cuda_in_commands as tests
from tests.support.stub_cuda import StubMachine
place, uid, root, library, world = sys.argv[1:]
become(int(uid))
machine = StubMachine(Path(library), Path(root))
layers = replace(tests.HERE, world=world == "True")
codes = []
with tests.LocalExecutor(
    entry=tests.COMMAND_ENTRY, environ=machine.environ(), root=machine.root, layers=layers
) as executor:
    for depth in ("0", "1", "2"):
        python = str(tests.SYSTEM_PYTHON)
        found = tests.result_of(
            executor, Path(place, depth), tests.START, depth, python=python
        )
        codes.append(found.score if hasattr(found, "score") else repr(found))
print(json.dumps(codes))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON.exists(), reason="root becomes another user here"
)
def test_the_driver_starts_for_an_ordinary_user(
    gpu_machine: StubMachine, world: bool, tmp_path: Path
) -> None:
    place, machine = tmp_path / "place", make_machine(gpu_machine.library, tmp_path / "machine")
    place.mkdir()
    for path in (*tmp_path.parents[:-2], tmp_path, gpu_machine.library):
        path.chmod(0o755)
    for path in (place, tmp_path / "machine", *(tmp_path / "machine").rglob("*")):
        os.chown(path, 54321, 54321)
    words = [str(place), "54321", str(machine.root), str(machine.library), str(world)]
    done = subprocess.run(
        [sys.executable, "-c", AS_USER, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ([0, 0, 0] if world else [0, 304, 304])


def test_a_failed_start_is_a_failure_with_its_reason(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    text = START.replace("print(", "sys.exit(f'CUDA error {code}') if code else print(")
    result = result_of(executor, tmp_path, text.replace("cuInit(0)", "cuInit(1)"), "0")
    assert isinstance(result, TrialFailed)
    assert result.status == "crash"
