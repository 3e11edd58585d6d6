"""Provide fixtures that several of these modules share."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import kernel_attacks
from tests.support.commands import script
from tests.support.stub_cuda import StubMachine, build_stub, make_machine
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same tensors whichever tests ran before."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def gpu_machine(tmp_path_factory: pytest.TempPathFactory) -> StubMachine:
    """Return a machine on which a trial on a GPU reaches its first instruction and goes no
    further."""
    library = build_stub(tmp_path_factory.mktemp("gpu-library"))
    return make_machine(library, tmp_path_factory.mktemp("gpu-machine"))


@pytest.fixture(scope="module")
def executor(request: pytest.FixtureRequest) -> Iterator[LocalExecutor]:
    """Yield an executor whose trials run the module's ``ENTRY``."""
    with LocalExecutor(entry=request.module.ENTRY, allow_unsandboxed=True) as executor:
        yield executor


@pytest.fixture(scope="module")
def without_namespaces(request: pytest.FixtureRequest) -> Iterator[LocalExecutor]:
    """Yield such an executor as it is where a machine allows no namespaces."""
    layers, entry = replace(Layers.detect(), world=False), request.module.ENTRY
    with LocalExecutor(entry=entry, layers=layers, allow_unsandboxed=True) as executor:
        yield executor


@pytest.fixture(scope="module")
def confined_with_gpu(gpu_machine: StubMachine) -> Iterator[LocalExecutor]:
    """Yield an executor for attacks on a machine where a GPU's driver starts."""
    environ, root = gpu_machine.environ(), gpu_machine.root
    with LocalExecutor(
        entry=kernel_attacks.ENTRY, environ=environ, root=root, allow_unsandboxed=True
    ) as executor:
        yield executor


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return the directory of a person's script."""
    return script(tmp_path / "own", "print(1)")


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    """Return the directory of a campaign's first trial, which does not exist yet."""
    return tmp_path / "trials" / "t000001"
