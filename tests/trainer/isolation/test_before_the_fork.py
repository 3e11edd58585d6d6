"""Nothing touches CUDA before a trial is forked: no child of a process that did can use it.

A stand-in for libcuda records every call. A stand-in for TransformerEngine starts CUDA on import,
as the real one has been seen to do (github.com/NVIDIA/TransformerEngine, issue 872). Triton is
imported with the compiler if it is installed.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile
from tests.support.stub_cuda import StubMachine, build_stub, make_machine
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers

STARTS_CUDA = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'
ENGINES = ("transformer_engine", "transformer_engine_torch", "deep_gemm", "flash_attn")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "calls-of-libcuda"


@pytest.fixture
def environ(tmp_path: Path, notes: Path) -> dict[str, str]:
    """Return the environment of a machine where every package that starts CUDA can be imported."""
    for name in ENGINES:
        package = tmp_path / "packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(STARTS_CUDA)
    (tmp_path / "library").mkdir()
    machine: StubMachine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    return {**machine.environ(notes=str(notes)), "PYTHONPATH": str(tmp_path / "packages")}


def test_the_spy_sees_what_starts_cuda(environ: dict[str, str], notes: Path) -> None:
    command = [sys.executable, "-c", "import transformer_engine"]
    subprocess.run(command, env=environ, check=True)
    assert [line.split()[1] for line in notes.read_text().splitlines()] == ["cuInit"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "megatron"])
def test_the_fork_server_leaves_cuda_alone(
    backend: str, environ: dict[str, str], notes: Path, tmp_path: Path
) -> None:
    """The imports of every trial do not call the driver."""
    asked = [*ENGINES, "trainer.training.child"]
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_imported, names=asked)
    entry = "tests.support.hostile_trainer:run"
    with LocalExecutor(entry=entry, environ=environ, allow_unsandboxed=True) as executor:
        executor.run(trial_spec(backend=backend), trial_dir)
    assert not notes.exists(), notes.read_text()
    imported = set(hostile.loot(trial_dir))
    assert not imported.intersection(ENGINES), "these are for the trial itself to import"
    assert imported == {"trainer.training.child"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "megatron"])
def test_the_server_leaves_gpus_alone(
    backend: str, environ: dict[str, str], notes: Path, tmp_path: Path
) -> None:
    """Not even Megatron's imports call the driver there, since a child has tried them."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_imported, names=[])
    spec = trial_spec(device="cuda", backend=backend)
    entry = "tests.support.hostile_trainer:run"
    with LocalExecutor(entry=entry, environ=environ, allow_unsandboxed=True) as executor:
        with contextlib.suppress(MachineryError):  # a torch without CUDA stops here
            executor.run(spec, trial_dir)
        server = str(executor.lane.server.pid)
    calls = notes.read_text().splitlines() if notes.exists() else []
    assert not [call for call in calls if call.split()[0] == server], calls


@pytest.mark.skipif(Layers.detect().landlock_abi < 1, reason="this kernel has no Landlock")
def test_no_trial_starts_a_process_to_find_the_c_library() -> None:
    """Starting a process costs milliseconds, and trials inherit what the fork server knows."""
    program = """
import sys
from trainer.isolation.kernel.sandbox import Layers, Sandbox
Sandbox.prepare(Layers(1, False))
started = []
sys.addaudithook(lambda name, args: name == "subprocess.Popen" and started.append(args))
from landlockpy import abi_version
abi_version()
sys.exit(bool(started))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
