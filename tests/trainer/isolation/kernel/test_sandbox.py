"""Attacks from inside a trial's process on every promise of trainer.isolation.kernel.sandbox."""

import errno
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SandboxError
from tests.support import hostile, kernel_attacks
from tests.support.hostile import refused
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine.environment import allowed_environment
from trainer.spec import ScoredText, TextPart, TrialFailed

HERE = Layers.detect()
SECRET = "the-secret"

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 6 or not HERE.seccomp, reason="this kernel cannot keep all promises"
)


@pytest.fixture(scope="module")
def landlocked() -> Iterator[LocalExecutor]:
    """Yield an executor without the system call filter, to show what Landlock stops by itself."""
    layers = Layers(HERE.landlock_abi, seccomp=False)
    with LocalExecutor(entry=kernel_attacks.ENTRY, layers=layers) as executor:
        yield executor


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Return a file of the user's that no trial may touch."""
    path = tmp_path / "home" / "precious"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


def test_a_text_to_confirm_on_is_read_by_those_alone_that_are_to_score_it(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "campaign" / "texts"
    folder.mkdir(parents=True)
    mine, other = folder / "mine.bin", folder / "other.bin"
    mine.write_text("mine")
    other.write_text("other")
    text = ScoredText(
        name="mine", path=str(mine), sha256="0" * 64, parts=(TextPart(tokens=2, bytes=1),)
    )
    assert refused(attack(confined, hostile.read, path=str(mine)))
    assert attack(unconfined, hostile.read, path=str(mine)) == "mine"
    assert attack(confined, hostile.read, texts=(text,), path=str(mine)) == "mine"
    assert refused(attack(confined, hostile.read, texts=(text,), path=str(other)))
    assert refused(attack(confined, hostile.write, texts=(text,), path=str(mine)))
    assert refused(attack(confined, hostile.list_directory, texts=(text,), path=str(folder)))


def test_no_key_reaches_the_environment(
    confined: LocalExecutor, attack: Callable[..., Any], door: str
) -> None:
    # A process that a trial starts cannot read what /proc says of a process.
    closed = attack(confined, hostile.read, path="/proc/self/environ")
    assert refused(closed) == (door == "command")
    ask = hostile.tell_variables if door == "command" else hostile.tell_environment
    told = attack(confined, ask)
    assert SECRET not in str(told)
    assert told["now"]["OMP_X"] == "kept"
    assert told["now"]["HOME"] == told["now"]["TMPDIR"] == f"{told['cwd']}/tmp"


def test_environment_is_an_allowlist() -> None:
    environ = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "1",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "NVIDIA_API_KEY": SECRET,
        "OMP_TOKEN": SECRET,
        "PYTORCH_password": SECRET,
        "CUDA_PWD": SECRET,
        "TORCH_PAT": SECRET,
        "NVIDIA_JWT": SECRET,
        "TRITON_REGISTRY": f"https://user:{SECRET}@registry",
        "CUDA_PATH": "/usr/local/cuda",
        "OMP_PROC_BIND": "true",
        "LD_PRELOAD": "/tmp/x.so",
        "PYTHONSTARTUP": "/tmp/x.py",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "HOME": "/home/someone",
        "http_proxy": "http://user:secret@proxy",
    }
    assert set(allowed_environment(environ)) == {
        *(
            "PATH",
            "LC_ALL",
            "CUDA_VISIBLE_DEVICES",
            "CUDA_PATH",
            "LANG",
            "GOMP_SPINCOUNT",
            "PYTHONHASHSEED",
        ),
        "TORCHINDUCTOR_COMPILE_THREADS",
        "TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER",
    }


def test_processes_outside_cannot_be_read(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    reads = [
        (hostile.read, {"path": f"/proc/{os.getpid()}/{name}"})
        for name in ("environ", "maps", "cmdline", "mem", "fd/0")
    ]
    assert all(map(refused, attack(confined, hostile.several, **hostile.in_turn(*reads))))
    # Of the others the kernel protects some by itself.
    assert isinstance(attack(unconfined, hostile.read, path=f"/proc/{os.getpid()}/cmdline"), str)


@pytest.mark.parametrize(
    "strike",
    [
        *(hostile.read, hostile.write, hostile.truncate, hostile.remove, hostile.move_in),
        *(hostile.write_through_symlink, hostile.write_through_hardlink, hostile.move_out),
        *(hostile.change_mode, hostile.change_owner, hostile.set_attribute),
    ],
)
def test_the_users_files_are_out_of_reach(
    strike: Callable[..., Any],
    confined: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Callable[..., Any],
    precious: Path,
) -> None:
    before = precious.stat()
    loot = attack(confined, strike, path=str(precious))
    # a move or link across the writable area answers EXDEV, as if it were another disk
    assert refused(loot) or loot["errno"] == errno.EXDEV
    assert precious.read_text() == SECRET
    assert precious.stat().st_mode == before.st_mode
    assert precious.stat().st_ctime_ns == before.st_ctime_ns or strike is hostile.read
    if strike is not hostile.set_attribute:  # not every file system keeps attributes
        assert isinstance(attack(unconfined, strike, path=str(precious)), str)


def test_nothing_can_be_created_outside(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any], tmp_path: Path
) -> None:
    target = tmp_path / "new"
    assert refused(attack(confined, hostile.write, path=str(target)))
    assert not target.exists()
    assert attack(unconfined, hostile.write, path=str(target)) == "written"
    for shared in ("/tmp", "/var/tmp"):
        assert refused(attack(confined, hostile.write, path=f"{shared}/autoresearch-{os.getpid()}"))
    # A command may have a /dev/shm of its own: its writes do not reach the machine's.
    in_memory = Path(f"/dev/shm/autoresearch-{os.getpid()}")
    attack(confined, hostile.write, path=str(in_memory))
    assert not in_memory.exists()


def test_the_campaign_and_other_trials_are_closed(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any], tmp_path: Path
) -> None:
    journal = tmp_path / "campaign" / "trajectory.jsonl"
    journal.parent.mkdir()
    journal.write_text("rows\n")
    for executor, stopped in ((unconfined, False), (confined, True)):
        assert refused(attack(executor, hostile.read, path=str(journal))) == stopped
        other = str(tmp_path / "campaign" / "trials" / "0" / "spec.json")
        assert refused(attack(executor, hostile.read, path=other)) == stopped
        assert refused(attack(executor, hostile.list_directory, path=str(tmp_path))) == stopped
        assert refused(attack(executor, hostile.write, path=str(journal))) == stopped


def test_the_systems_secrets_are_closed(
    confined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    secrets = ("/etc/shadow", "/proc/1/environ", "/proc/kcore", "/dev/mem")
    reads: list[Any] = [(hostile.read, {"path": path}) for path in secrets]
    for loot in attack(confined, hostile.several, **hostile.in_turn(*reads)):
        assert loot["errno"] in {errno.EACCES, errno.EPERM, errno.ENOENT}
    assert refused(attack(confined, hostile.list_directory, path=str(Path.home())))


def test_own_directory_and_corpus_can_be_used(
    confined: LocalExecutor, attack: Callable[..., Any], tmp_path: Path, door: str
) -> None:
    assert attack(confined, hostile.use_own_directory) == "te"
    tokens = tmp_path / "corpus" / "tokens"
    read = attack(confined, hostile.read, path=str(tokens))
    assert refused(read) if door == "command" else read == "the corpus"
    assert refused(attack(confined, hostile.write, path=str(tokens)))


def test_own_files_cannot_be_executed(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    assert refused(attack(confined, hostile.execute_own_file))
    assert attack(unconfined, hostile.execute_own_file) == "0"


def test_a_campaign_inside_what_trials_read_is_refused(
    confined: LocalExecutor, tmp_path: Path
) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_capabilities)
    with pytest.raises(SandboxError):
        confined.run(trial_spec(corpus_dir=tmp_path), trial_dir)


@pytest.fixture
def tcp_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_no_tcp(
    confined: LocalExecutor,
    landlocked: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Callable[..., Any],
    tcp_port: int,
) -> None:
    for executor in (confined, landlocked):  # either layer is enough
        assert refused(attack(executor, hostile.connect_tcp, port=tcp_port))
        assert refused(attack(executor, hostile.bind_tcp))
    assert attack(unconfined, hostile.connect_tcp, port=tcp_port) == "connected"
    assert attack(unconfined, hostile.bind_tcp) == "bound"


def test_no_udp(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)
        port = receiver.getsockname()[1]
        assert refused(attack(confined, hostile.send_udp, port=port))
        with pytest.raises(TimeoutError):
            receiver.recv(100)
        assert attack(unconfined, hostile.send_udp, port=port) == "sent"
        assert receiver.recv(100) == b"secret"


def test_no_socket_of_another_family(confined: LocalExecutor, attack: Callable[..., Any]) -> None:
    families = ("AF_INET", "AF_INET6", "AF_PACKET", "AF_NETLINK", "AF_VSOCK")
    kind = int(socket.SOCK_DGRAM)
    sockets = hostile.in_turn(
        *(
            (hostile.open_socket, {"family": int(getattr(socket, family)), "kind": kind})
            for family in families
        )
    )
    loot = attack(confined, hostile.several, **sockets)
    assert [one["errno"] for one in loot] == [errno.EACCES] * len(families)


def test_no_unix_socket_outside(
    confined_with_gpu: LocalExecutor,
    landlocked: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Session buses and container daemons listen on socket files."""
    by_path = str(tmp_path / "socket")
    by_name = f"@autoresearch-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.bind(by_path)
        second.bind(by_name.replace("@", "\0"))
        first.listen()
        second.listen()
        for address in (by_path, by_name):
            given = {"address": address, "device": "cuda"}
            loot = attack(confined_with_gpu, hostile.connect_unix, **given)
            assert loot["errno"] == errno.ECONNREFUSED
            assert attack(unconfined, hostile.connect_unix, address=address) == "connected"
        assert refused(attack(landlocked, hostile.connect_unix, address=by_name))


def test_no_signal_to_the_supervisor(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Callable[..., Any]
) -> None:
    received = threading.Event()
    before = signal.signal(signal.SIGUSR2, lambda *_: received.set())
    try:
        assert refused(attack(confined, hostile.send_signal, pid=os.getpid()))
        assert not received.is_set()
        assert attack(unconfined, hostile.send_signal, pid=os.getpid()) == "sent"
        received.wait()
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is of x86_64")
def test_the_x32_numbers_kill(confined: LocalExecutor, tmp_path: Path) -> None:
    result = confined.run(trial_spec(), hostile.arm(tmp_path / "t", hostile.call_x32)).result
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("killed", "killed by SIGSYS")


def test_privileges_are_given_up(
    confined: LocalExecutor, attack: Callable[..., Any], door: str
) -> None:
    by_call = door == "command"
    told = attack(confined, hostile.ask_for_capabilities if by_call else hostile.tell_capabilities)
    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"
    assert int(told["CapEff"], 16) & ~0b110 == 0
    assert int(told["CapPrm"], 16) & ~0b110 == 0
    assert told["CapInh"] == told["CapAmb"] == "0" * 16


def test_a_file_cannot_grow_past_its_limit(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "t", hostile.write_huge_file, size_bytes=8 << 20)
    confined.run(trial_spec(file_bytes=2 << 20), trial_dir)
    assert hostile.loot(trial_dir)["errno"] == errno.EFBIG
    assert (trial_dir / "huge").stat().st_size == 2 << 20


def test_open_files_are_limited_and_the_limit_stays(
    confined: LocalExecutor, tmp_path: Path
) -> None:
    trial_dir = hostile.arm(tmp_path / "t", hostile.open_many_files, many=200)
    confined.run(trial_spec(open_files=100), trial_dir)
    assert hostile.loot(trial_dir)["errno"] == errno.EMFILE
    trial_dir = hostile.arm(tmp_path / "u", hostile.raise_open_files_limit)
    confined.run(trial_spec(open_files=100), trial_dir)
    assert refused(hostile.loot(trial_dir))


def test_no_core_dump(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "t", hostile.dump_core)
    result = confined.run(trial_spec(), trial_dir).result
    assert isinstance(result, TrialFailed)
    left = {path.name for path in trial_dir.iterdir()}
    assert left == {"attack.json", "result.json", "spec.json", "trainer.log"}


def test_without_landlock_the_run_is_refused() -> None:
    with pytest.raises(SandboxError, match="--allow-unsandboxed"):
        LocalExecutor(layers=Layers(0, seccomp=True))


def test_without_landlock_it_says_so(unconfined: LocalExecutor, confined: LocalExecutor) -> None:
    assert unconfined.describe() == "UNSANDBOXED, no seccomp, fork server"
    assert confined.describe() == f"landlock abi {HERE.landlock_abi}, seccomp, fork server"


def test_permission_to_go_unsandboxed_does_not_unsandbox(tmp_path: Path, precious: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "t", hostile.read, path=str(precious))
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor:
        executor.run(trial_spec(), trial_dir)
    assert refused(hostile.loot(trial_dir))
