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
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoresearch.errors import SandboxError
from tests.support import hostile, kernel_attacks
from tests.support.doors import IN_A_WORLD, TRAINER, WITHOUT, unreachable
from tests.support.hostile import refused
from tests.support.places import ROOT
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine.environment import allowed_environment
from trainer.schema import ScoredText, TextPart, TrialFailed

HERE = Layers.detect()
SECRET = "the-secret"
Strike = Callable[..., Any]

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 6 or not HERE.seccomp, reason="this kernel cannot keep all promises"
)


@pytest.fixture
def unfiltered(door: str) -> Iterator[LocalExecutor]:
    """Yield an executor without the system call filter, to show what the others stop without it."""
    layers = replace(HERE, seccomp=False, world=door == IN_A_WORLD)
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
ABSENT, NO_PROCESS = {errno.ENOENT}, {errno.ESRCH}
WORKS: set[int | None] = {None}
"""Outcome of an attack that the sandbox lets happen, since it reaches nothing outside."""
ON_FILES = (
    *(hostile.read, hostile.write, hostile.move_in, hostile.move_out),
    *(hostile.write_through_symlink, hostile.write_through_hardlink),
)
CALLS: dict[str, list[Any]] = {
    "os.truncate": [0],
    "os.unlink": [],
    "os.chown": [os.getuid(), os.getgid()],  # an owner may do this, root or not
}
SHUT = (
    "bpf mount finit_module chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr"
    " move_mount mount_setattr pivot_root syslog semget msgget shmat mq_open fanotify_init"
    " setns umount2 perf_event_open userfaultfd add_key memfd_secret"
).split()
NO_WATCH = frozenset({errno.EINVAL, errno.EFAULT})
FREE = "io_uring_setup unshare keyctl".split()
FREE_IN_A_WORLD = "process_vm_readv pidfd_getfd ptrace".split()
"""Calls that a process without capabilities may make; the last makes its parent its tracer, and so
comes last."""
SHARED = ("/tmp", "/var/tmp")
TABLES = ("unix", "tcp", "route")
NET = [f"/proc/{who}/net/{one}" for who in ("self", "thread-self") for one in TABLES]
OWN_FAMILIES = ("AF_INET", "AF_INET6", "AF_NETLINK")
FAMILIES = ("AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_CAN", "AF_RDS", "AF_TIPC")


@dataclass(frozen=True)
class Row:
    """An attack, and the errors that it may get in the sandbox."""

    attack: Strike
    arguments: dict[str, Any]
    errors: Set[int | None]
    without: str = ""
    """Outcome without the sandbox: it "works", gets an "answer" other than EPERM, or is not tried
    ("")."""
    in_world: Set[int | None] | None = None
    """Errors in a world of its own; None: the same."""
    command: Set[int | None] | None = None
    """Errors of a command without namespaces; None: the same."""

    def allowed(self, door: str) -> Set[int | None]:
        """Return the errors that the attack may get; None among them if it may work."""
        special = {IN_A_WORLD: self.in_world, WITHOUT: self.command}.get(door)
        return self.errors if special is None else special


ATTACKS: list[Row] = [
    *(Row(one, {"path": f"TMP/home/{one.__name__}"}, ELSEWHERE, "works", ABSENT)
      for one in ON_FILES),
    *(Row(hostile.do, {"call": call, "given": [f"TMP/home/{call}", *more]}, DENIED, "works", ABSENT)
      for call, more in CALLS.items()),
    # Of a command without namespaces it changes nothing and succeeds.
    Row(hostile.do, {"call": "os.chmod", "given": ["TMP/home/os.chmod", 0o777]}, DENIED, "works",
        ABSENT, command=WORKS),
    # not on every disk
    Row(hostile.set_attribute, {"path": "TMP/home/attribute"}, DENIED, "", ABSENT),
    # A world has a /tmp of its own, with places for what it sees of the machine's.
    Row(hostile.write, {"path": "TMP/new"}, DENIED, "works", WORKS),
    *(Row(hostile.write, {"path": f"{shared}/autoresearch-PID"}, DENIED, "", expected)
      for shared, expected in zip(SHARED, (WORKS, ABSENT), strict=True)),
    Row(hostile.read, {"path": "TMP/campaign/trajectory.jsonl"}, DENIED, "works", ABSENT),
    Row(hostile.read, {"path": "TMP/campaign/trials/other/spec.json"}, DENIED, "works", ABSENT),
    Row(hostile.do, {"call": "os.listdir", "given": ["TMP/home"]}, DENIED, "works", ABSENT),
    Row(hostile.do, {"call": "os.listdir", "given": ["TMP"]}, DENIED, "works", WORKS),
    Row(hostile.write, {"path": "TMP/campaign/trajectory.jsonl"}, DENIED, "works", WORKS),
    *(Row(hostile.read, {"path": path}, {*DENIED, errno.ENOENT})
      for path in ("/etc/shadow", "/proc/1/environ", "/proc/kcore", "/dev/mem")),
    # In a world: the way to a Python that lies there.
    Row(hostile.do, {"call": "os.listdir", "given": [str(Path.home())]}, DENIED, "works", WORKS),
    *(Row(hostile.read, {"path": f"/proc/PID/{name}"}, DENIED, "", ABSENT)
      for name in ("environ", "maps", "mem", "fd/0")),
    Row(hostile.read, {"path": "/proc/PID/cmdline"}, DENIED, "works", ABSENT),
    *(Row(hostile.read, {"path": path}, EACCES, "works", WORKS) for path in NET),
    Row(hostile.execute_own_file, {}, DENIED, "works", WORKS),
    *(Row(hostile.do, {"call": "socket.socket", "given": [getattr(socket, name), 2]}, EACCES, "",
          WORKS) for name in OWN_FAMILIES),
    *(Row(hostile.do, {"call": "socket.socket", "given": [getattr(socket, name), 2]}, EACCES)
      for name in FAMILIES if hasattr(socket, name)),
    # Netlink's other protocols are about devices, audits and firewalls.
    *(Row(hostile.do, {"call": "socket.socket", "given": [socket.AF_NETLINK, 3, protocol]}, EACCES)
      for protocol in (9, 12, 15, 16)),
    *(Row(hostile.do, {"call": "socket.socket", "given": [family, socket.SOCK_RAW, 1]}, EACCES)
      for family in (socket.AF_INET, socket.AF_INET6)),
    Row(kernel_attacks.bind_abstract, {}, EACCES, "works", WORKS),
    Row(kernel_attacks.bind_path, {}, EACCES, "works", WORKS),
    Row(kernel_attacks.talk_to_oneself, {}, EACCES, "works", WORKS, command=WORKS),
    # The capabilities of the user's other processes may refuse this anyway: test_ordinary_user.py.
    Row(*kernel_attacks.on_the_user(), EPERM, "", WORKS),
    Row(kernel_attacks.watch_directory, {"path": "TMP/home"}, EPERM, "works", ABSENT),
    Row(kernel_attacks.make_segment, {"mib": 1}, EPERM, "works"),
    Row(kernel_attacks.lend_pages_to_pipe, {}, EPERM, "works"),
    Row(kernel_attacks.hold_shared, {"mib": 1}, EPERM, "works", WORKS),
    Row(kernel_attacks.grow_pipe, {"size_bytes": 1 << 17}, EPERM, "works"),
    Row(kernel_attacks.allocate_beyond_the_end, {"size_bytes": 1 << 25}, {errno.EOPNOTSUPP},
        "works"),
    Row(kernel_attacks.allocate_within, {"size_bytes": 16 << 20}, {errno.EFBIG}),
    Row(kernel_attacks.call, {"name": "clone3"}, {errno.ENOSYS}),
    *(Row(kernel_attacks.call, {"name": name}, EPERM) for name in SHUT),
    Row(kernel_attacks.call, {"name": "memfd_create"}, EPERM, "", {errno.ENOSYS}),
    # In a world it looked at its arguments, which are no watch.
    Row(kernel_attacks.call, {"name": "inotify_add_watch"}, EPERM, "", NO_WATCH),
    *(Row(kernel_attacks.call, {"name": name}, EPERM, "answers") for name in FREE),
    *(Row(kernel_attacks.call, {"name": name}, EPERM, "answers", {errno.EBADF, *WORKS})
      for name in FREE_IN_A_WORLD),
]  # fmt: skip


def furnished(tmp_path: Path) -> None:
    """Make the files that no trial may touch."""
    for name in ("attribute", *(one.__name__ for one in ON_FILES), *CALLS):
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / name).write_text(SECRET)
    (tmp_path / "home" / "os.chmod").write_text(SECRET)
    (tmp_path / "campaign/trials/other").mkdir(parents=True)
    for name in ("trajectory.jsonl", "trials/other/spec.json"):
        (tmp_path / "campaign" / name).write_text(SECRET)


def struck(
    attack: Strike, executor: LocalExecutor, rows: list[Row], tmp_path: Path
) -> dict[str, Any]:
    """Make the attacks in one trial; return the loot of each, by its name and arguments."""
    told = json.dumps([row.arguments for row in rows])
    there = json.loads(told.replace("TMP", str(tmp_path)).replace("PID", str(os.getpid())))
    attacks = [row.attack for row in rows]
    orders = hostile.in_turn(*zip(attacks, there, strict=True))
    loot = attack(executor, hostile.several, **orders)
    names = [f"{one.__name__} {arguments}" for one, arguments in zip(attacks, there, strict=True)]
    return dict(zip(names, loot, strict=True))


def got_of(loot: Any) -> int | None:
    """Return the errno that stopped an attack; None if it worked."""
    return loot["errno"] if isinstance(loot, dict) and "errno" in loot else None


def state_of(process: psutil.Process) -> tuple[object, ...]:
    limit = resource.prlimit(process.pid, resource.RLIMIT_CPU)
    cores = tuple(process.cpu_affinity() or ())
    return process.nice(), cores, process.ionice(), os.sched_getscheduler(process.pid), limit


def test_each_attack_is_refused_and_works_without_the_sandbox(
    sandboxed: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Strike,
    door: str,
    victim: psutil.Process,
    tmp_path: Path,
) -> None:
    """Attacks that a world lets happen change nothing outside."""
    furnished(tmp_path)
    files = sorted((tmp_path / "home").iterdir())
    before = [path.stat() for path in files], state_of(victim)
    attacks = [
        *(
            Row(*one, EPERM, "works", NO_PROCESS)
            for one in kernel_attacks.on_a_process(victim.pid).values()
        ),
        *ATTACKS,
    ]
    loot = struck(attack, sandboxed, attacks, tmp_path)
    assert len(loot) == len(attacks)
    allowed = dict(zip(loot, (row.allowed(door) for row in attacks), strict=True))
    got = {name: got_of(one) for name, one in loot.items()}
    assert {name: (one, loot[name]) for name, one in got.items() if one not in allowed[name]} == {}
    after = [path.stat() for path in files], state_of(victim)
    assert [(one.st_mode, one.st_ctime_ns) for one in after[0]] == [
        (one.st_mode, one.st_ctime_ns) for one in before[0]
    ]
    assert after[1] == before[1]
    made = [tmp_path / "new", *(Path(one, f"autoresearch-{os.getpid()}") for one in SHARED)]
    assert [path for path in made if path.exists()] == []
    assert {path.read_text() for path in tmp_path.glob("campaign/*.jsonl")} == {SECRET}
    free = [row for row in attacks if row.without]
    loot = struck(attack, unconfined, free, tmp_path)
    for (name, one), row in zip(loot.items(), free, strict=True):
        error = got_of(one)
        assert error != errno.EPERM if row.without == "answers" else error is None, (name, one)


# --- attacks that need more -----------------------------------------------------------------------


def test_only_scorers_read_a_text(sandboxed: LocalExecutor, attack: Strike, tmp_path: Path) -> None:
    folder = tmp_path / "campaign" / "texts"
    folder.mkdir(parents=True)
    mine, other = str(folder / "mine.bin"), str(folder / "other.bin")
    for path in (mine, other):
        Path(path).write_text("text")
    texts = (
        ScoredText(name="mine", path=mine, sha256="0" * 64, parts=(TextPart(tokens=2, bytes=1),)),
    )
    assert unreachable(attack(sandboxed, hostile.read, path=mine))
    assert attack(sandboxed, hostile.read, texts=texts, path=mine) == "text"
    assert refused(attack(sandboxed, hostile.read, texts=texts, path=other))
    assert refused(attack(sandboxed, hostile.write, texts=texts, path=mine))
    assert refused(
        attack(sandboxed, hostile.do, texts=texts, call="os.listdir", given=[str(folder)])
    )


def test_no_key_reaches_the_environment(
    sandboxed: LocalExecutor, attack: Strike, door: str
) -> None:
    started_with = attack(sandboxed, hostile.read, path="/proc/self/environ")
    told = attack(sandboxed, hostile.tell_variables)
    assert SECRET not in f"{told} {started_with}"
    assert "OMP_X=kept" in started_with
    assert told["now"]["OMP_X"] == "kept"
    assert told["now"]["HOME"] == f"{told['cwd']}/tmp"
    assert told["now"]["TMPDIR"] == ("/tmp" if door == IN_A_WORLD else told["now"]["HOME"])


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


def test_a_dev_shm_of_its_own_is_not_the_machines(
    sandboxed: LocalExecutor, attack: Strike, door: str
) -> None:
    in_memory = Path(f"/dev/shm/autoresearch-{os.getpid()}")
    written = attack(sandboxed, hostile.write, path=str(in_memory))
    assert written == "written" if door == IN_A_WORLD else refused(written)
    assert not in_memory.exists()


def test_own_directory_and_corpus_can_be_used(
    sandboxed: LocalExecutor, attack: Strike, tmp_path: Path, door: str
) -> None:
    assert attack(sandboxed, hostile.use_own_directory) == "te"
    assert attack(sandboxed, kernel_attacks.allocate_within, size_bytes=4 << 20) >= 4 << 20
    tokens = tmp_path / "corpus" / "tokens"
    read = attack(sandboxed, hostile.read, path=str(tokens))
    assert read == "the corpus" if door == TRAINER else unreachable(read)
    assert unreachable(attack(sandboxed, hostile.write, path=str(tokens)))
    assert tokens.read_text() == "the corpus"


def test_a_campaign_in_what_trials_read_is_refused(confined: LocalExecutor, tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.tell_variables)
    with pytest.raises(SandboxError):
        confined.run(trial_spec(corpus_dir=tmp_path), trial_dir)


def test_no_socket_reaches_what_listens_outside(
    sandboxed: LocalExecutor,
    sandboxed_with_gpu: LocalExecutor,
    unfiltered: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Strike,
    tmp_path: Path,
    door: str,
) -> None:
    """Session buses and container daemons listen on socket files. Landlock stops TCP and abstract
    sockets once more; a network of its own stops all."""
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
            (sandboxed, "cpu", errno.EACCES),
            (sandboxed_with_gpu, "cuda", errno.ECONNREFUSED),
        ):
            loot = attack(executor, hostile.several, device=device, **strikes)
            expected: list[int | None] = [errno.EACCES] * 5 + [of_unix] * 2
            if door == IN_A_WORLD:
                expected = IN_AN_EMPTY_NETWORK
            assert [got_of(one) for one in loot] == expected, device
        for receiver in (udp, datagrams):
            with pytest.raises(BlockingIOError):
                receiver.recv(100)
        loot = attack(unfiltered, hostile.several, **strikes)
        if door == IN_A_WORLD:
            assert [got_of(one) for one in loot] == IN_AN_EMPTY_NETWORK
        else:
            assert [refused(one) for one in (*loot[:2], loot[-1])] == [True] * 3
            for receiver in (udp, datagrams):
                assert receiver.recv(100) == b"secret"
            assert datagrams.recv(100) == b"secret"
        loot = attack(unconfined, hostile.several, **strikes)
        assert loot == ["connected", "bound", "sent", "sent", "sent", "connected", "connected"]
        udp.settimeout(None)
        assert udp.recv(100) == datagrams.recv(100) == b"secret"


IN_AN_EMPTY_NETWORK = [
    errno.ECONNREFUSED,
    None,
    None,  # sent to nobody
    *[errno.ENOENT] * 3,
    errno.ECONNREFUSED,
]
"""Errors of these attacks in a world: TCP, a port, UDP, three path sockets, an abstract one."""


def test_a_gpu_has_sockets_and_memfds(
    sandboxed_with_gpu: LocalExecutor, attack: Strike, door: str
) -> None:
    strikes = hostile.in_turn(
        (kernel_attacks.bind_path, {}),
        (kernel_attacks.bind_abstract, {}),
        (kernel_attacks.talk_to_oneself, {}),
        (kernel_attacks.call, {"name": "memfd_create"}),
    )
    loot = attack(sandboxed_with_gpu, hostile.several, device="cuda", **strikes)
    assert loot[1:3] == ["bound", "x"]
    # it looked at the name of the memfd, which is nowhere
    of_path = None if door == IN_A_WORLD else errno.EACCES
    assert [got_of(one) for one in loot[::3]] == [of_path, errno.EFAULT]


def test_no_signal_to_the_supervisor(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    received = threading.Event()
    before = signal.signal(signal.SIGUSR2, lambda *_: received.set())
    try:
        order = {"call": "os.kill", "given": [os.getpid(), signal.SIGUSR2]}
        assert unreachable(attack(sandboxed, hostile.do, **order))
        assert not received.is_set()
        assert attack(unconfined, hostile.do, **order) == "done"
        received.wait()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_thread_may_schedule_itself(sandboxed: LocalExecutor, attack: Strike) -> None:
    own = hostile.in_turn(*kernel_attacks.on_a_process(0).values())
    assert not any(map(refused, attack(sandboxed, hostile.several, **own)))


def test_no_namespace_and_with_it_no_capability(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    assert attack(sandboxed, kernel_attacks.enter_namespaces)["errno"] == errno.EPERM
    told = attack(unconfined, kernel_attacks.enter_namespaces)
    if isinstance(told, dict):
        pytest.skip("this machine makes no user namespaces, so there is nothing to refuse")
    assert int(told.split()[1], 16) > 0b110


def test_a_trial_can_read_of_itself(sandboxed: LocalExecutor, attack: Strike) -> None:
    names = ("maps", "status", "stat", "environ", "cmdline", "cgroup")
    reads = hostile.in_turn(*((hostile.read, {"path": f"/proc/self/{name}"}) for name in names))
    assert all(isinstance(read, str) for read in attack(sandboxed, hostile.several, **reads))


def test_what_the_dynamic_loader_runs_is_confined_too(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, attack: Strike, tmp_path: Path, door: str
) -> None:
    """Nothing here stops the program from running, but it cannot read files outside."""
    loaders = [*Path("/lib64").glob("ld-linux*"), *Path("/lib").glob("ld-linux*")]
    (tmp_path / "precious").write_text("text")
    mine = tmp_path / "corpus" / "tokens" if door == TRAINER else ROOT / "tests/support/places.py"
    given = {"loader": str(loaders[0]), "path": str(mine)}
    assert attack(sandboxed, kernel_attacks.load_own_program, **given) == mine.read_text()
    given["path"] = str(tmp_path / "precious")
    assert attack(sandboxed, kernel_attacks.load_own_program, **given)["errno"] == errno.EACCES
    assert attack(unconfined, kernel_attacks.load_own_program, **given) == "text"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is of x86_64")
def test_the_x32_numbers_kill(confined: LocalExecutor, tmp_path: Path) -> None:
    result = confined.run(trial_spec(), hostile.arm(tmp_path / "t", hostile.call_x32)).result
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("killed", "killed by SIGSYS")


def test_privileges_are_given_up(sandboxed: LocalExecutor, attack: Strike) -> None:
    told = attack(sandboxed, hostile.ask_for_capabilities)
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


def test_open_files_bound_pipes_and_not_watches(sandboxed: LocalExecutor, attack: Strike) -> None:
    """Linux limits the watches of a user, by default at 4 % of the memory."""
    assert 0 < attack(sandboxed, kernel_attacks.fill_pipes, many=20) <= 20 << 16
    held = attack(sandboxed, kernel_attacks.pile_up_watches, polls=10, files=20, numbers=20)
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
    assert unconfined.describe() == "UNSANDBOXED, no seccomp, no namespaces, fork server"
    worlds = "namespaces" if HERE.world else "no namespaces"
    said = f"landlock abi {HERE.landlock_abi}, seccomp, {worlds}, fork server"
    assert confined.describe() == said
    (tmp_path / "precious").write_text(SECRET)
    trial_dir = hostile.arm(tmp_path / "t", hostile.read, path=str(tmp_path / "precious"))
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor:
        executor.run(trial_spec(), trial_dir)
    assert refused(hostile.loot(trial_dir))
