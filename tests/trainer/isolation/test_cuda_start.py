"""CUDA's driver starts inside the sandbox of a real trial, by a library that makes the real calls.

The stand-in (tests/support/stub_libcuda.c) makes the system calls of the real libcuda, so a refusal
by the sandbox shows without a GPU.
"""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile
from tests.support.hostile import refused
from tests.support.stub_cuda import StubMachine, build_stub, make_machine
from tests.support.trials import on_gpu, trial_spec
from trainer.executors.base import TrialAborted
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers

HERE = Layers.detect()

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 5 or not HERE.seccomp, reason="this kernel cannot keep all promises"
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> StubMachine:
    library = build_stub(tmp_path_factory.mktemp("library"))
    return make_machine(library, tmp_path_factory.mktemp("machine"))


@contextmanager
def executor_on(
    machine: StubMachine, *, layers: Layers = HERE, root: Path | None = None, **told: str
) -> Iterator[LocalExecutor]:
    with LocalExecutor(
        entry=hostile.ENTRY,
        environ=machine.environ(**told),
        layers=layers,
        allow_unsandboxed=True,
        root=root or machine.root,
    ) as executor:
        yield executor


@pytest.fixture(scope="module")
def confined(machine: StubMachine) -> Iterator[LocalExecutor]:
    with executor_on(machine) as executor:
        yield executor


@pytest.fixture(scope="module")
def unconfined(machine: StubMachine) -> Iterator[LocalExecutor]:
    with executor_on(machine, layers=Layers(0, seccomp=False)) as executor:
        yield executor


def log_of(trial_dir: Path) -> str:
    return (trial_dir / "trainer.log").read_text()


def test_libcuda_starts_in_a_trial(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    confined.run(on_gpu(), trial_dir)
    assert "stub libcuda" not in log_of(trial_dir)
    told = hostile.loot(trial_dir)
    assert told["loaded"], "the stand-in was started in the trial itself"
    # The kernel drops unused entries of /proc, and the rule does not cover a new one. The next
    # thread's name was refused after `echo 2 > /proc/sys/vm/drop_caches`.
    assert f"/proc/{told['pid']}/task" in told["open"]


def test_a_trial_on_a_cpu_starts_no_driver(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with executor_on(machine, ends="304") as executor:
        executor.run(trial_spec(device="cpu"), trial_dir)
    assert not hostile.loot(trial_dir)["loaded"]


@pytest.mark.parametrize(
    ("told", "device", "said"),
    [
        # Both paths are closed, and the stand-in reports that as the real library does.
        ({"reads": "/proc/1/environ"}, "cuda", "cuInit returned 304"),
        ({"writes": "/proc/self/comm"}, "cuda", "cuInit returned 304"),
        ({"ends": "803"}, "cuda", "cuInit returned 803"),
        ({"ends": "5"}, "cuda", "cuInit returned 5"),
        ({"ends": "segv"}, "cuda", "SIGSEGV"),
        ({"ends": "exit"}, "cuda", "exit code 0"),
        pytest.param({"ends": "hang"}, "cuda", "20 s", marks=pytest.mark.slow),
        ({"after": "46"}, "cuda", "cuDeviceGetCount returned 46"),
        ({}, "cuda:1", "cuDeviceGet returned 101"),
    ],
)
def test_a_driver_that_does_not_start_is_never_evidence(
    told: dict[str, str], device: str, said: str, machine: StubMachine, tmp_path: Path
) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with (
        executor_on(machine, **told) as executor,
        pytest.raises(MachineryError, match=said) as failure,
    ):
        spec = on_gpu(wall_s=20 if told.get("ends") == "hang" else 60)
        executor.run(spec.model_copy(update={"device": device}), trial_dir)
    assert not (trial_dir / "result.json").exists()
    assert "\n" not in str(failure.value), "one plain sentence"
    assert ("Permission denied" in log_of(trial_dir)) == ("304" in said)


def test_without_a_driver_the_sentence_says_so(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with (
        LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor,
        pytest.raises(MachineryError),
    ):
        executor.run(on_gpu(), trial_dir)


def test_only_a_kill_before_the_first_step_counts(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "a", hostile.die_by, number=int(signal.SIGSEGV))
    with pytest.raises(MachineryError):
        confined.run(on_gpu(), trial_dir)
    assert not (trial_dir / "result.json").exists()
    trial_dir = hostile.arm(tmp_path / "b", hostile.die_by, number=int(signal.SIGKILL))
    assert confined.run(on_gpu(), trial_dir).result.status == "killed"


def test_a_stop_that_was_asked_for_stays_one(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with executor_on(machine, ends="hang") as executor, pytest.raises(TrialAborted):
        server = psutil.Process(executor.lane.server.pid)
        executor.run(on_gpu(), trial_dir, should_stop=lambda: bool(server.children()))
    assert (trial_dir / "spec.json").exists(), "it was stopped while its driver started"


def test_a_trial_on_a_cpu_names_no_threads(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.rename_own_thread, name="mine")
    confined.run(trial_spec(device="cpu"), trial_dir)
    assert refused(hostile.loot(trial_dir))


def test_what_the_driver_needs_opens_nothing_else(
    machine: StubMachine, confined: LocalExecutor, unconfined: LocalExecutor, tmp_path: Path
) -> None:
    """Landlock allows a memory file to be executed, and the driver needs memfd_create."""
    root, threads = machine.root, f"/proc/{os.getpid()}/task/{os.getpid()}"
    params = root / "proc" / "driver" / "nvidia" / "params"
    address, secret = "/proc/sys/vm/mmap_min_addr", tmp_path / "precious"
    secret.write_text("the secret")
    closed = [root / "proc" / "driver" / "rtc", root / "dev" / "sda", root / "proc" / "meminfo"]
    for path in closed[:2]:
        path.write_text("other")
    read = [*closed, "/proc/sys/kernel/core_pattern", f"{threads}/environ"]
    written = [
        *(f"{threads}/{name}" for name in ("comm", "oom_score_adj", "mem", "clear_refs")),
        *(f"/proc/self/{name}" for name in ("oom_score_adj", "comm", "mem")),
        *(params, params.with_name("new"), root / "dev" / "nvidia-new", address),
    ]
    attacks = [
        (hostile.rename_own_thread, {"name": "mine"}),
        (hostile.read, {"path": str(params)}),
        (hostile.read, {"path": address}),
        (hostile.read_with_a_program_in_memory, {"path": str(secret)}),
        # Creating a file there is not allowed, and the kernel could not do it.
        (hostile.write, {"path": "/proc/self/task/new"}),
        *((hostile.read, {"path": str(path)}) for path in read),
        *((hostile.write, {"path": str(path)}) for path in written),
        (hostile.do, {"call": "os.unlink", "given": [str(root / "dev" / "nvidia0")]}),
        (hostile.write_to_the_server, {}),
        # The path to its threads allows it, but the kernel lets no process go below its previous
        # value: it cannot make itself safe from the out-of-memory killer.
        (hostile.spare_oneself, {"score": -1}),
    ]

    def struck(executor: LocalExecutor, name: str, *attacks: Any) -> list[Any]:
        trial_dir = tmp_path / "campaign" / "trials" / name
        hostile.arm(trial_dir, hostile.several, **hostile.in_turn(*attacks))
        executor.run(on_gpu(), trial_dir)
        loot: list[Any] = hostile.loot(trial_dir)
        return loot

    renamed, found, number, told, new, *others = struck(confined, "a", *attacks)
    assert (renamed, found, number.strip().isdigit()) == ("mine", "", True)
    assert "the secret" not in told
    assert "errno" in new
    assert [one for one in zip(attacks[5:], others, strict=True) if not refused(one[1])] == []
    told, server, score = struck(
        unconfined,
        "b",
        attacks[3],
        (hostile.write_to_the_server, {}),
        (hostile.write, {"path": f"{threads}/oom_score_adj"}),
    )
    assert told == "the secret"
    # The kernel does not accept this text, but the files were writable.
    assert server["errno"] == score["errno"] == errno.EINVAL
