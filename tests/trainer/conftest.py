"""Provide fixtures that several of these modules share."""

import sys

import pytest

from tests.support.stub_cuda import StubMachine, build_stub, make_machine


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
