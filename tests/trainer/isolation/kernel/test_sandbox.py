"""Attacks from inside a trial's process on every promise of trainer.isolation.kernel.sandbox."""

import errno
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoresearch.errors import SandboxError
from tests.support import hostile, kernel_attacks
from tests.support.hostile import refused
from tests.support.places import ROOT
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine.environment import allowed_environment
from trainer.spec import ScoredText, TextPart, TrialFailed

HERE = Layers.detect()
SECRET = "the-secret"
Strike = Callable[..., Any]

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
def victim() -> Iterator[psutil.Process]:
    """Yield a process of the same user that is unrelated to the trial."""
    command = [sys.executable, "-m", "tests.support.bystander"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


# --- attacks that need nothing but a place --------------------------------------------------------

DENIED = {errno.EACCES, errno.EPERM}
ELSEWHERE = {*DENIED, errno.EXDEV}
"""A move or link across the writable area answers EXDEV, as if it were another disk."""
EPERM, EACCES = {errno.EPERM}, {errno.EACCES}
ON_FILES = (
    *(hostile.read, hostile.write, hostile.move_in, hostile.move_out),
    *(hostile.write_through_symlink, hostile.write_through_hardlink),
)
CALLS: dict[str, list[Any]] = {
    "os.truncate": [0],
    "os.unlink": [],
    "os.chmod": [0o777],
    "os.chown": [os.getuid(), os.getgid()],  # an owner may do this, root or not
}
SHUT = (
    "bpf mount finit_module chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr"
    " move_mount mount_setattr pivot_root syslog semget msgget shmat mq_open fanotify_init"
    " inotify_add_watch memfd_create"
).split()
FREE = "process_vm_readv io_uring_setup unshare keyctl pidfd_getfd ptrace".split()
"""Calls that a process without capabilities may make; the last makes its parent its tracer."""
TABLES = ("unix", "tcp", "route")
NET = [f"/proc/{who}/net/{one}" for who in ("self", "thread-self") for one in TABLES]
FAMILIES = ("AF_INET", "AF_INET6", "AF_PACKET", "AF_NETLINK", "AF_VSOCK")
Row = tuple[Strike, dict[str, Any], set[int], str]
ATTACKS: list[Row] = [
    # attack, arguments, errors in the sandbox; without it: it "works", gets an "answer" other than
    # EPERM, or is not tried ("")
    *((one, {"path": f"TMP/home/{one.__name__}"}, ELSEWHERE, "works") for one in ON_FILES),
    *((hostile.do, {"call": call, "given": [f"TMP/home/{call}", *more]}, DENIED, "works")
      for call, more in CALLS.items()),
    (hostile.set_attribute, {"path": "TMP/home/attribute"}, DENIED, ""),  # not on every disk
    (hostile.write, {"path": "TMP/new"}, DENIED, "works"),
    *((hostile.write, {"path": f"/{shared}/autoresearch-PID"}, DENIED, "")
      for shared in ("tmp", "var/tmp")),
    (hostile.read, {"path": "TMP/campaign/trajectory.jsonl"}, DENIED, "works"),
    (hostile.read, {"path": "TMP/campaign/trials/other/spec.json"}, DENIED, "works"),
    (hostile.do, {"call": "os.listdir", "given": ["TMP"]}, DENIED, "works"),
    (hostile.write, {"path": "TMP/campaign/trajectory.jsonl"}, DENIED, "works"),
    *((hostile.read, {"path": path}, {*DENIED, errno.ENOENT}, "")
      for path in ("/etc/shadow", "/proc/1/environ", "/proc/kcore", "/dev/mem")),
    (hostile.do, {"call": "os.listdir", "given": [str(Path.home())]}, DENIED, "works"),
    *((hostile.read, {"path": f"/proc/PID/{name}"}, DENIED, "")
      for name in ("environ", "maps", "mem", "fd/0")),
    (hostile.read, {"path": "/proc/PID/cmdline"}, DENIED, "works"),
    *((hostile.read, {"path": path}, EACCES, "works") for path in NET),
    (hostile.execute_own_file, {}, DENIED, "works"),
    *((hostile.do, {"call": "socket.socket", "given": [getattr(socket, name), 2]}, EACCES, "")
      for name in FAMILIES),
    (kernel_attacks.bind_abstract, {}, EACCES, "works"),
    (kernel_attacks.bind_path, {}, EACCES, "works"),
    (kernel_attacks.talk_to_oneself, {}, EACCES, "works"),
    # The capabilities of the user's other processes may refuse this anyway: test_ordinary_user.py.
    (*kernel_attacks.on_the_user(), EPERM, ""),
    (kernel_attacks.watch_directory, {"path": "TMP"}, EPERM, "works"),
    (kernel_attacks.make_segment, {"mib": 1}, EPERM, "works"),
    (kernel_attacks.lend_pages_to_pipe, {}, EPERM, "works"),
    (kernel_attacks.hold_shared, {"mib": 1}, EPERM, "works"),
    (kernel_attacks.grow_pipe, {"size_bytes": 1 << 17}, EPERM, "works"),
    (kernel_attacks.allocate_beyond_the_end, {"size_bytes": 1 << 25}, {errno.EOPNOTSUPP}, "works"),
    (kernel_attacks.allocate_within, {"size_bytes": 16 << 20}, {errno.EFBIG}, ""),
    (kernel_attacks.call, {"name": "clone3"}, {errno.ENOSYS}, ""),
    *((kernel_attacks.call, {"name": name}, EPERM, "") for name in SHUT),
    *((kernel_attacks.call, {"name": name}, EPERM, "answers") for name in FREE),
]  # fmt: skip


def furnished(tmp_path: Path) -> None:
    """Make the files that no trial may touch."""
    for name in ("attribute", *(one.__name__ for one in ON_FILES), *CALLS):
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / name).write_text(SECRET)
    (tmp_path / "campaign/trials/other").mkdir(parents=True)
    for name in ("trajectory.jsonl", "trials/other/spec.json"):
        (tmp_path / "campaign" / name).write_text(SECRET)


def struck(
    attack: Strike, executor: LocalExecutor, rows: list[Row], tmp_path: Path
) -> dict[str, Any]:
    """Make the attacks in one trial; return the loot of each, by its name and arguments."""
    told = json.dumps([arguments for _, arguments, _, _ in rows])
    there = json.loads(told.replace("TMP", str(tmp_path)).replace("PID", str(os.getpid())))
    attacks = [one for one, *_ in rows]
    orders = hostile.in_turn(*zip(attacks, there, strict=True))
    loot = attack(executor, hostile.several, **orders)
    names = [f"{one.__name__} {arguments}" for one, arguments in zip(attacks, there, strict=True)]
    return dict(zip(names, loot, strict=True))


def state_of(process: psutil.Process) -> tuple[object, ...]:
    limit = resource.prlimit(process.pid, resource.RLIMIT_CPU)
    cores = tuple(process.cpu_affinity() or ())
    return process.nice(), cores, process.ionice(), os.sched_getscheduler(process.pid), limit


def test_each_attack_is_refused_and_works_without_the_sandbox(
    confined: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Strike,
    victim: psutil.Process,
    tmp_path: Path,
) -> None:
    furnished(tmp_path)
    files = sorted((tmp_path / "home").iterdir())
    before = [path.stat() for path in files], state_of(victim)
    attacks = [
        *((*one, EPERM, "works") for one in kernel_attacks.on_a_process(victim.pid).values()),
        *ATTACKS,
    ]
    loot = struck(attack, confined, attacks, tmp_path)
    allowed = {name: errors for name, (_, _, errors, _) in zip(loot, attacks, strict=True)}
    got = {name: one for name, one in loot.items() if not isinstance(one, dict)}
    assert got == {}
    assert {k: v for k, v in loot.items() if v["errno"] not in allowed[k]} == {}
    after = [path.stat() for path in files], state_of(victim)
    assert [(one.st_mode, one.st_ctime_ns) for one in after[0]] == [
        (one.st_mode, one.st_ctime_ns) for one in before[0]
    ]
    assert after[1] == before[1]
    assert not (tmp_path / "new").exists()
    assert {path.read_text() for path in tmp_path.glob("campaign/*.jsonl")} == {SECRET}
    free = [row for row in attacks if row[3]]
    loot = struck(attack, unconfined, free, tmp_path)
    for (name, one), (_, _, _, outcome) in zip(loot.items(), free, strict=True):
        answered = not isinstance(one, dict) or one["errno"] != errno.EPERM
        assert answered if outcome == "answers" else not isinstance(one, dict), (name, one)


# --- attacks that need more -----------------------------------------------------------------------


def test_only_scorers_read_a_text(confined: LocalExecutor, attack: Strike, tmp_path: Path) -> None:
    folder = tmp_path / "campaign" / "texts"
    folder.mkdir(parents=True)
    mine, other = str(folder / "mine.bin"), str(folder / "other.bin")
    for path in (mine, other):
        Path(path).write_text("text")
    texts = (
        ScoredText(name="mine", path=mine, sha256="0" * 64, parts=(TextPart(tokens=2, bytes=1),)),
    )
    assert refused(attack(confined, hostile.read, path=mine))
    assert attack(confined, hostile.read, texts=texts, path=mine) == "text"
    assert refused(attack(confined, hostile.read, texts=texts, path=other))
    assert refused(attack(confined, hostile.write, texts=texts, path=mine))
    assert refused(
        attack(confined, hostile.do, texts=texts, call="os.listdir", given=[str(folder)])
    )


def test_no_key_reaches_the_environment(confined: LocalExecutor, attack: Strike, door: str) -> None:
    # A process that a trial starts cannot read what /proc says of a process.
    closed = attack(confined, hostile.read, path="/proc/self/environ")
    assert refused(closed) == (door == "command")
    told = attack(confined, hostile.tell_variables)
    assert SECRET not in f"{told} {closed}"
    assert told["now"]["OMP_X"] == "kept"
    assert told["now"]["HOME"] == told["now"]["TMPDIR"] == f"{told['cwd']}/tmp"


def test_environment_is_an_allowlist() -> None:
    kept = ("PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "CUDA_PATH")
    dropped = (
        "AWS_SECRET_ACCESS_KEY NVIDIA_API_KEY OMP_TOKEN PYTORCH_password CUDA_PWD TORCH_PAT"
        " NVIDIA_JWT OMP_PROC_BIND LD_PRELOAD PYTHONSTARTUP SSH_AUTH_SOCK HOME"
    ).split()
    urls = dict.fromkeys(("TRITON_REGISTRY", "http_proxy"), f"https://user:{SECRET}@host")
    found = allowed_environment(dict.fromkeys((*kept, *dropped), "1") | urls)
    assert set(found) == {
        *(*kept, "LANG", "GOMP_SPINCOUNT", "PYTHONHASHSEED", "TORCHINDUCTOR_COMPILE_THREADS"),
        "TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER",
    }


def test_a_dev_shm_of_its_own_is_not_the_machines(confined: LocalExecutor, attack: Strike) -> None:
    in_memory = Path(f"/dev/shm/autoresearch-{os.getpid()}")
    attack(confined, hostile.write, path=str(in_memory))
    assert not in_memory.exists()


def test_own_directory_and_corpus_can_be_used(
    confined: LocalExecutor, attack: Strike, tmp_path: Path, door: str
) -> None:
    assert attack(confined, hostile.use_own_directory) == "te"
    assert attack(confined, kernel_attacks.allocate_within, size_bytes=4 << 20) >= 4 << 20
    tokens = tmp_path / "corpus" / "tokens"
    read = attack(confined, hostile.read, path=str(tokens))
    assert refused(read) if door == "command" else read == "the corpus"
    assert refused(attack(confined, hostile.write, path=str(tokens)))


def test_a_campaign_in_what_trials_read_is_refused(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_variables)
    with pytest.raises(SandboxError):
        confined.run(trial_spec(corpus_dir=tmp_path), trial_dir)


def test_no_socket_reaches_what_listens_outside(
    confined: LocalExecutor,
    confined_with_gpu: LocalExecutor,
    landlocked: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Strike,
    tmp_path: Path,
) -> None:
    """Session buses and container daemons listen on socket files. Either layer stops TCP."""
    path, name, told = (str(tmp_path / "s"), f"@autoresearch-{os.getpid()}", str(tmp_path / "d"))
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        opened = [
            stack.enter_context(socket.socket(family, kind))
            for family, kind in ((2, 2), (1, 1), (1, 1), (1, 2))
        ]
        addresses = (("127.0.0.1", 0), path, name.replace("@", "\0"), told)
        for one, address in zip(opened, addresses, strict=True):
            one.bind(address)
            one.setblocking(False)
        udp, by_path, by_name, datagrams = opened
        by_path.listen()
        by_name.listen()
        port = {"port": tcp.getsockname()[1]}
        strikes = hostile.in_turn(
            (hostile.connect_tcp, port),
            (hostile.bind_tcp, {}),
            (hostile.send_udp, {"port": udp.getsockname()[1]}),
            *((kernel_attacks.send_datagram, {"path": told, "way": way})
              for way in ("sendto", "sendmsg")),
            *((hostile.connect_unix, {"address": address}) for address in (path, name)),
        )  # fmt: skip
        for executor, device, of_unix in (
            (confined, "cpu", errno.EACCES),
            (confined_with_gpu, "cuda", errno.ECONNREFUSED),
        ):
            loot = attack(executor, hostile.several, device=device, **strikes)
            assert [one["errno"] for one in loot] == [errno.EACCES] * 5 + [of_unix] * 2
        for receiver in (udp, datagrams):
            with pytest.raises(BlockingIOError):
                receiver.recv(100)
        loot = attack(landlocked, hostile.several, **strikes)
        assert [refused(one) for one in (*loot[:2], loot[-1])] == [True] * 3
        loot = attack(unconfined, hostile.several, **strikes)
        assert loot == ["connected", "bound", "sent", "sent", "sent", "connected", "connected"]
        udp.settimeout(None)
        assert udp.recv(100) == datagrams.recv(100) == b"secret"


def test_a_gpu_has_sockets_and_memfds(confined_with_gpu: LocalExecutor, attack: Strike) -> None:
    strikes = hostile.in_turn(
        (kernel_attacks.bind_path, {}),
        (kernel_attacks.bind_abstract, {}),
        (kernel_attacks.talk_to_oneself, {}),
        (kernel_attacks.call, {"name": "memfd_create"}),
    )
    loot = attack(confined_with_gpu, hostile.several, device="cuda", **strikes)
    assert loot[1:3] == ["bound", "x"]
    # it looked at the name of the memfd, which is nowhere
    assert [one["errno"] for one in loot[::3]] == [errno.EACCES, errno.EFAULT]


def test_no_signal_to_the_supervisor(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    received = threading.Event()
    before = signal.signal(signal.SIGUSR2, lambda *_: received.set())
    try:
        order = {"call": "os.kill", "given": [os.getpid(), signal.SIGUSR2]}
        assert refused(attack(confined, hostile.do, **order))
        assert not received.is_set()
        assert attack(unconfined, hostile.do, **order) == "done"
        received.wait()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_thread_may_schedule_itself(confined: LocalExecutor, attack: Strike) -> None:
    own = hostile.in_turn(*kernel_attacks.on_a_process(0).values())
    assert not any(map(refused, attack(confined, hostile.several, **own)))


def test_no_namespace_and_with_it_no_capability(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    assert attack(confined, kernel_attacks.enter_namespaces)["errno"] == errno.EPERM
    told = attack(unconfined, kernel_attacks.enter_namespaces)
    if isinstance(told, dict):
        pytest.skip("this machine makes no user namespaces, so there is nothing to refuse")
    assert int(told.split()[1], 16) > 0b110


def test_a_trial_can_read_of_itself(confined: LocalExecutor, attack: Strike, door: str) -> None:
    names = ("maps", "status", "stat", "environ", "cmdline", "cgroup")
    reads = hostile.in_turn(*((hostile.read, {"path": f"/proc/self/{name}"}) for name in names))
    for read in attack(confined, hostile.several, **reads):
        if door == "trainer":
            assert isinstance(read, str)
        else:  # a process that the trial has started has another place in /proc
            assert read["errno"] == errno.EACCES


def test_what_the_dynamic_loader_runs_is_confined_too(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike, tmp_path: Path, door: str
) -> None:
    """Nothing here stops the program from running, but it cannot read files outside."""
    loaders = [*Path("/lib64").glob("ld-linux*"), *Path("/lib").glob("ld-linux*")]
    (tmp_path / "precious").write_text("text")
    mine = tmp_path / "corpus" / "tokens" if door == "trainer" else ROOT / "tests/support/places.py"
    given = {"loader": str(loaders[0]), "path": str(mine)}
    assert attack(confined, kernel_attacks.load_own_program, **given) == mine.read_text()
    given["path"] = str(tmp_path / "precious")
    assert attack(confined, kernel_attacks.load_own_program, **given)["errno"] == errno.EACCES
    assert attack(unconfined, kernel_attacks.load_own_program, **given) == "text"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is of x86_64")
def test_the_x32_numbers_kill(confined: LocalExecutor, tmp_path: Path) -> None:
    result = confined.run(trial_spec(), hostile.arm(tmp_path / "t", hostile.call_x32)).result
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("killed", "killed by SIGSYS")


def test_privileges_are_given_up(confined: LocalExecutor, attack: Strike) -> None:
    told = attack(confined, hostile.ask_for_capabilities)
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    assert int(told["CapEff"], 16) & ~0b110 == int(told["CapPrm"], 16) & ~0b110 == 0
    assert told["CapInh"] == told["CapAmb"] == "0" * 16


def test_files_are_limited_and_the_limits_stay(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(
        tmp_path / "t",
        hostile.several,
        **hostile.in_turn(
            (hostile.write_huge_file, {"size_bytes": 8 << 20}),
            (hostile.open_many_files, {"many": 200}),
            (hostile.raise_open_files_limit, {}),
        ),
    )
    confined.run(trial_spec(file_bytes=2 << 20, open_files=100), trial_dir)
    numbers = [one["errno"] for one in hostile.loot(trial_dir)]
    assert numbers == [errno.EFBIG, errno.EMFILE, errno.EPERM]
    assert (trial_dir / "huge").stat().st_size == 2 << 20


def test_open_files_bound_pipes_and_not_watches(confined: LocalExecutor, attack: Strike) -> None:
    """Linux limits the watches of a user, by default at 4 % of the memory."""
    assert 0 < attack(confined, kernel_attacks.fill_pipes, many=20) <= 20 << 16
    held = attack(confined, kernel_attacks.pile_up_watches, polls=10, files=20, numbers=20)
    assert held["watches"] == 10 * 20 * 20
    assert held["watches"] > (held["open_files"] / 2) ** 2, "the most, if each needs two files"
    most = int(Path("/proc/sys/fs/epoll/max_user_watches").read_text())
    assert held["watches"] < most


def test_no_core_dump(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "t", hostile.do, call="os.abort", given=[])
    assert isinstance(confined.run(trial_spec(), trial_dir).result, TrialFailed)
    left = {path.name for path in trial_dir.iterdir()}
    assert left == {"attack.json", "result.json", "spec.json", "trainer.log"}


def test_what_confines_is_told_and_permission_to_go_without_takes_none_away(
    unconfined: LocalExecutor, confined: LocalExecutor, tmp_path: Path
) -> None:
    with pytest.raises(SandboxError, match="--allow-unsandboxed"):
        LocalExecutor(layers=Layers(0, seccomp=True))
    assert unconfined.describe() == "UNSANDBOXED, no seccomp, fork server"
    assert confined.describe() == f"landlock abi {HERE.landlock_abi}, seccomp, fork server"
    (tmp_path / "precious").write_text(SECRET)
    trial_dir = hostile.arm(tmp_path / "t", hostile.read, path=str(tmp_path / "precious"))
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor:
        executor.run(trial_spec(), trial_dir)
    assert refused(hostile.loot(trial_dir))
