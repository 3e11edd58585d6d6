"""If a GPU shares the machine's memory, a trial's use of it cannot exhaust the machine.

The machine's /proc/meminfo is a file here, updated with what real processes hold.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from autoresearch.errors import MachineryError
from tests.support import hostile
from tests.support.processes import of_trials
from tests.support.stub_cuda import StubMachine, build_stub, make_machine, set_available
from tests.support.trials import on_gpu
from trainer.executors.local import LocalExecutor
from trainer.machine.device import cap_memory
from trainer.machine.host import available_gib
from trainer.schema import TrialFailed

MACHINE_GIB = 12.0
SCALE = 100
"""Bytes of the simulated machine per byte that a process holds."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("library"))


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> StubMachine:
    return make_machine(library, tmp_path / "machine")


class Scales:
    """Weigh real processes, and update the simulated machine's /proc/meminfo with what they
    leave."""

    def __init__(self, root: Path, executor: LocalExecutor) -> None:
        self._root = root
        self._executor = executor
        self._begun: dict[int, int] = {}
        self.beside: set[int] = set()
        """Other processes that hold memory from their start on."""
        self.least_gib = MACHINE_GIB

    def weigh(self) -> bool:
        """Update the file; the supervisor calls this at every poll."""
        trials = [process.pid for process in of_trials(self._executor)]
        held = 0
        for pid in (*trials, *self.beside):
            try:
                resident = psutil.Process(pid).memory_info().rss
            except psutil.Error:
                continue
            held += resident
            if pid not in self.beside:  # the trial's initial memory is not growth
                held -= self._begun.setdefault(pid, resident)
        left_gib = MACHINE_GIB - SCALE * held / 2**30
        self.least_gib = min(self.least_gib, left_gib)
        set_available(self._root, left_gib)
        return False


@contextmanager
def scales(machine: StubMachine, *, integrated: bool) -> Iterator[tuple[LocalExecutor, Scales]]:
    told = {"integrated": "1"} if integrated else {}
    with LocalExecutor(
        entry=hostile.ENTRY,
        environ=machine.environ(**told),
        allow_unsandboxed=True,
        root=machine.root,
    ) as executor:
        yield executor, Scales(machine.root, executor)


def test_a_trial_is_ended_before_the_machine_is_full(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.grow, mib=120, pause_s=0.01)
    with scales(machine, integrated=True) as (executor, weighing):
        spec = on_gpu(reserve_gib=8)
        result = executor.run(spec, trial_dir, should_stop=weighing.weigh).result
    assert isinstance(result, TrialFailed)
    assert result.status == "oom", result
    assert "under the 4 GiB that are half of" in result.message
    assert 0 < weighing.least_gib < 4, "what ran out before the trial was ended is some of the 4"


def test_whatever_else_is_on_the_machine_counts(machine: StubMachine, tmp_path: Path) -> None:
    """A model server grows beside a trial that holds nothing."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.nap, s=60)
    code = "import time\nhoard = []\nfor _ in range(120):\n    hoard.append(b'x' * (1 << 20)); "
    with (
        scales(machine, integrated=True) as (executor, weighing),
        subprocess.Popen([sys.executable, "-c", f"{code}time.sleep(0.01)\ntime.sleep(60)"]) as nim,
    ):
        weighing.beside.add(nim.pid)
        spec = on_gpu(reserve_gib=8)
        result = executor.run(spec, trial_dir, should_stop=weighing.weigh).result
        nim.kill()
    assert result.status == "oom"


def test_a_gpu_with_own_memory_ignores_the_machines(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.nap, s=0.5)
    set_available(machine.root, 0.1)
    with scales(machine, integrated=False) as (executor, _):
        result = executor.run(on_gpu(), trial_dir).result
    assert isinstance(result, TrialFailed)
    assert result.message == "ended without a result"


def test_a_machine_without_meminfo_is_no_evidence(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.nap, s=60)
    (machine.root / "proc" / "meminfo").unlink()
    with scales(machine, integrated=True) as (executor, _), pytest.raises(MachineryError):
        executor.run(on_gpu(), trial_dir)


def test_available_is_the_kernels_own_word() -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("no /proc/meminfo here")
    assert available_gib() == pytest.approx(psutil.virtual_memory().available / 2**30, rel=0.2)


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: much kB\n"])
def test_a_damaged_meminfo_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(text)
    with pytest.raises(MachineryError):
        available_gib(tmp_path / "meminfo")


class Allocator:
    """The part of torch.cuda that setting a limit needs."""

    def __init__(self, *, is_integrated: bool, gib: int) -> None:
        self._properties = SimpleNamespace(is_integrated=is_integrated, total_memory=gib << 30)
        self.fractions: list[float] = []

    def get_device_properties(self, device: torch.device) -> SimpleNamespace:
        return self._properties

    def set_per_process_memory_fraction(self, fraction: float, device: torch.device) -> None:
        self.fractions.append(fraction)


@pytest.mark.parametrize("is_integrated", [True, False])
def test_torchs_allocator_has_a_limit(is_integrated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator(is_integrated=is_integrated, gib=4096)
    monkeypatch.setattr(torch, "cuda", allocator)
    cap_memory(torch.device("cuda"), 0.25)
    if is_integrated:
        (fraction,) = allocator.fractions
        assert fraction * 4096 == pytest.approx(available_gib() - 0.25, rel=0.2)
    else:
        assert allocator.fractions == []
    small = Allocator(is_integrated=True, gib=1)
    monkeypatch.setattr(torch, "cuda", small)
    cap_memory(torch.device("cuda"), 0.25)
    assert small.fractions == [1.0]


@pytest.mark.parametrize("text", ["CUDA error: out of memory\nCUDA kernel errors might", ""])
def test_a_limit_that_cannot_be_set_is_no_fault(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GB10, cudaMemGetInfo fails while the page cache fills the memory."""

    def fails(fraction: float, device: torch.device) -> None:
        raise RuntimeError(text)

    allocator = Allocator(is_integrated=True, gib=64)
    monkeypatch.setattr(allocator, "set_per_process_memory_fraction", fails)
    monkeypatch.setattr(torch, "cuda", allocator)
    with pytest.raises(MachineryError) as raised:
        cap_memory(torch.device("cuda"), 0.25)
    assert "\n" not in str(raised.value)
