"""CUDA's driver starts inside the sandbox of a real trial, by a library that makes the real calls.

The stand-in (tests/support/stub_libcuda.c) makes the system calls of the real libcuda, so a refusal
by the sandbox shows without a GPU.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterator
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
from trainer.spec import TrialFailed

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


def test_what_is_refused_stops_the_campaign_with_the_code(
    machine: StubMachine, tmp_path: Path
) -> None:
    """The stand-in can fail: each of these paths is closed, and it reports that as the real library
    does."""
    for number, told in enumerate(({"reads": "/proc/1/environ"}, {"writes": "/proc/self/comm"})):
        trial_dir = hostile.arm(tmp_path / str(number), hostile.tell_driver)
        with (
            executor_on(machine, **told) as executor,
            pytest.raises(MachineryError, match="cuInit returned 304"),
        ):
            executor.run(on_gpu(), trial_dir)
        assert "Permission denied" in log_of(trial_dir)
        assert not (trial_dir / "result.json").exists(), "it is no evidence"


def test_a_trial_on_a_cpu_starts_no_driver(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with executor_on(machine, ends="304") as executor:
        executor.run(trial_spec(device="cpu"), trial_dir)
    assert not hostile.loot(trial_dir)["loaded"]


@pytest.mark.parametrize(
    ("told", "device", "said"),
    [
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


def test_without_a_driver_the_sentence_says_so(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with (
        LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor,
        pytest.raises(MachineryError),
    ):
        executor.run(on_gpu(), trial_dir)


def test_a_crash_between_the_start_and_the_first_step_is_no_evidence(
    confined: LocalExecutor, tmp_path: Path
) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.die_by, number=int(signal.SIGSEGV))
    with pytest.raises(MachineryError):
        confined.run(on_gpu(), trial_dir)
    assert not (trial_dir / "result.json").exists()


def test_what_kills_a_trial_after_the_start_may_be_its_memory(
    confined: LocalExecutor, tmp_path: Path
) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.die_by, number=int(signal.SIGKILL))
    result = confined.run(on_gpu(), trial_dir).result
    assert isinstance(result, TrialFailed)
    assert result.status == "killed"


def test_a_stop_that_was_asked_for_stays_one(machine: StubMachine, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_driver)
    with executor_on(machine, ends="hang") as executor, pytest.raises(TrialAborted):
        server = psutil.Process(executor.lane.server.pid)
        executor.run(on_gpu(), trial_dir, should_stop=lambda: bool(server.children()))
    assert (trial_dir / "spec.json").exists(), "it was stopped while its driver started"


@pytest.fixture
def attack(tmp_path: Path) -> Callable[..., Any]:
    """Run an attack in a fresh trial on the GPU; return its loot."""

    def attack(executor: LocalExecutor, what: Callable[..., Any], /, **arguments: object) -> Any:
        trials = tmp_path / "campaign" / "trials"
        number = len(list(trials.iterdir())) if trials.exists() else 0
        trial_dir = hostile.arm(trials / str(number), what, **arguments)
        executor.run(on_gpu(), trial_dir)
        return hostile.loot(trial_dir)

    return attack


def test_the_names_of_threads_open_no_other_process(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    """The exception does not open anything else of this process outside its threads, either."""
    supervisor = f"/proc/{os.getpid()}/task/{os.getpid()}"
    assert attack(confined, hostile.rename_own_thread, name="mine") == "mine"
    for file in ("comm", "oom_score_adj", "mem", "clear_refs"):
        assert refused(attack(confined, hostile.write, path=f"{supervisor}/{file}")), file
    for path in ("/proc/self/oom_score_adj", "/proc/self/comm", "/proc/self/mem"):
        assert refused(attack(confined, hostile.write, path=path)), path
    assert refused(attack(confined, hostile.read, path=f"{supervisor}/environ"))
    # Creating a file there is not allowed, and the kernel could not do it.
    assert "errno" in attack(confined, hostile.write, path="/proc/self/task/new")
    score = f"{supervisor}/oom_score_adj"
    # The kernel does not accept this text, but the file was writable.
    assert attack(unconfined, hostile.write, path=score)["errno"] == errno.EINVAL
    assert attack(unconfined, hostile.write_to_the_server)["errno"] == errno.EINVAL
    assert refused(attack(confined, hostile.write_to_the_server))


def test_a_trial_cannot_make_itself_safe_from_the_out_of_memory_killer(
    confined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    """The path to its threads allows it, but the kernel lets no process go below its previous
    value."""
    assert refused(attack(confined, hostile.spare_oneself, score=-1))


def test_a_trial_on_a_cpu_names_no_threads(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.rename_own_thread, name="mine")
    confined.run(trial_spec(device="cpu"), trial_dir)
    assert refused(hostile.loot(trial_dir))


def test_the_drivers_files_open_no_others(
    machine: StubMachine, confined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    """Files beside them stay closed, and readable files cannot be written."""
    root = machine.root
    (root / "proc" / "driver" / "rtc").write_text("other")
    (root / "dev" / "sda").write_text("other")
    closed = [root / "proc" / "driver" / "rtc", root / "dev" / "sda", root / "proc" / "meminfo"]
    params = root / "proc" / "driver" / "nvidia" / "params"
    assert attack(confined, hostile.read, path=str(params)) == ""
    for path in closed:
        assert refused(attack(confined, hostile.read, path=str(path))), path
    for path in (params, params.with_name("new"), root / "dev" / "nvidia-new"):
        assert refused(attack(confined, hostile.write, path=str(path))), path
    assert refused(attack(confined, hostile.remove, path=str(root / "dev" / "nvidia0")))
    address = "/proc/sys/vm/mmap_min_addr"
    assert attack(confined, hostile.read, path=address).strip().isdigit()
    assert refused(attack(confined, hostile.write, path=address))
    assert refused(attack(confined, hostile.read, path="/proc/sys/kernel/core_pattern"))


def test_a_program_in_memory_is_confined_like_the_trial(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any], tmp_path: Path
) -> None:
    """The driver needs memfd_create, and Landlock allows a memory file to be executed."""
    secret = tmp_path / "precious"
    secret.write_text("the secret")
    told = attack(confined, hostile.read_with_a_program_in_memory, path=str(secret))
    assert "the secret" not in told
    told = attack(unconfined, hostile.read_with_a_program_in_memory, path=str(secret))
    assert told == "the secret"
