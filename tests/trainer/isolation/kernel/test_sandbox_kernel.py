"""Attacks from inside a trial's process on the system call filter."""

import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import hostile, kernel_attacks
from tests.support.places import ROOT
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers

HERE = Layers.detect()

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 6 or not HERE.seccomp, reason="this kernel cannot keep all promises"
)


Strike = Callable[..., Any]


@pytest.fixture
def victim() -> Iterator[psutil.Process]:
    """Yield a process of the same user that is unrelated to the trial."""
    command = [sys.executable, "-m", "tests.support.bystander"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


def test_no_limit_on_another_process(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike, victim: psutil.Process
) -> None:
    """An RLIMIT_CPU of 0 kills: it would end the supervisor, which ends trials."""
    before = resource.prlimit(victim.pid, resource.RLIMIT_CPU)
    loot = attack(confined, kernel_attacks.limit_processor_time, pid=victim.pid)
    assert loot["errno"] == errno.EPERM
    assert resource.prlimit(victim.pid, resource.RLIMIT_CPU) == before
    assert attack(unconfined, kernel_attacks.limit_processor_time, pid=victim.pid) == "done"
    assert resource.prlimit(victim.pid, resource.RLIMIT_CPU) == (3600, 3600)


SCHEDULING = [
    *(
        kernel_attacks.set_priority,
        kernel_attacks.set_affinity,
        kernel_attacks.set_scheduler,
        kernel_attacks.set_io_priority,
    ),
    *(kernel_attacks.set_scheduling_parameters, kernel_attacks.set_scheduling_attributes),
]


def scheduling_of(process: psutil.Process) -> tuple[object, ...]:
    return (
        process.nice(),
        tuple(process.cpu_affinity() or ()),
        process.ionice(),
        os.sched_getscheduler(process.pid),
    )


def test_no_hand_on_the_scheduling_of_another_process(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike, victim: psutil.Process
) -> None:
    before = scheduling_of(victim)
    strikes = hostile.in_turn(*((strike, {"pid": victim.pid}) for strike in SCHEDULING))
    loot = attack(confined, hostile.several, **strikes)
    assert [one["errno"] for one in loot] == [errno.EPERM] * len(SCHEDULING)
    assert scheduling_of(victim) == before
    assert set(attack(unconfined, hostile.several, **strikes)) == {"done"}


def test_no_hand_on_all_processes_of_the_user(confined: LocalExecutor, attack: Strike) -> None:
    """The capabilities of the user's other processes may refuse the call anyway.
    test_ordinary_user.py runs the attack as an ordinary user."""
    assert attack(confined, kernel_attacks.set_priority_of_user)["errno"] == errno.EPERM


def test_a_thread_may_schedule_itself(confined: LocalExecutor, attack: Strike) -> None:
    strikes = (kernel_attacks.limit_processor_time, *SCHEDULING)
    own = hostile.in_turn(*((strike, {"pid": 0}) for strike in strikes))
    assert attack(confined, hostile.several, **own) == ["done"] * len(strikes)


def test_no_namespace_and_with_it_no_capability(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    assert attack(confined, kernel_attacks.enter_namespaces)["errno"] == errno.EPERM
    told = attack(unconfined, kernel_attacks.enter_namespaces)
    if isinstance(told, dict):
        pytest.skip("this machine makes no user namespaces, so there is nothing to refuse")
    assert int(told.split()[1], 16) > 0b110


SHUT = (
    "bpf mount finit_module process_vm_readv io_uring_setup unshare keyctl pidfd_getfd chroot"
    " fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount mount_setattr pivot_root"
    " syslog semget msgget shmat mq_open fanotify_init inotify_add_watch"
    " ptrace"  # the last, as it makes the parent its tracer
).split()


def test_doors_into_the_kernel_are_shut(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    calls = [(kernel_attacks.call, {"name": name}) for name in ("clone3", *SHUT)]
    loot = attack(confined, hostile.several, **hostile.in_turn(*calls))
    assert [one["errno"] for one in loot] == [errno.ENOSYS, *[errno.EPERM] * len(SHUT)]
    # Without the filter, and without capabilities, the kernel refuses some of the others too.
    free = "process_vm_readv io_uring_setup unshare keyctl pidfd_getfd ptrace".split()
    calls = [(kernel_attacks.call, {"name": name}) for name in free]
    for answer in attack(unconfined, hostile.several, **hostile.in_turn(*calls)):
        assert answer == "called" or answer["errno"] != errno.EPERM


def test_names_made_in_closed_directories_are_not_told(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike, tmp_path: Path
) -> None:
    path = str(tmp_path)
    assert attack(confined, kernel_attacks.watch_directory, path=path)["errno"] == errno.EPERM
    assert attack(unconfined, kernel_attacks.watch_directory, path=path) == "watching"


def test_the_machines_connections_are_not_listed(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    paths = [
        f"/proc/{directory}/net/{table}"
        for directory in ("self", "thread-self")
        for table in ("unix", "tcp", "route")
    ]
    reads = hostile.in_turn(*((hostile.read, {"path": path}) for path in paths))
    loot = attack(confined, hostile.several, **reads)
    assert [one["errno"] for one in loot] == [errno.EACCES] * len(paths)
    assert all(isinstance(one, str) for one in attack(unconfined, hostile.several, **reads))


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


@pytest.mark.parametrize(
    ("device", "fixture"), [("cpu", "confined"), ("cuda", "confined_with_gpu")]
)
@pytest.mark.parametrize("way", ["sendto", "sendmsg"])
def test_no_datagram_to_a_socket_outside(
    device: str,
    fixture: str,
    way: str,
    request: pytest.FixtureRequest,
    unconfined: LocalExecutor,
    attack: Strike,
    tmp_path: Path,
) -> None:
    confined: LocalExecutor = request.getfixturevalue(fixture)
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.setblocking(False)
        loot = attack(confined, kernel_attacks.send_datagram, device=device, path=path, way=way)
        assert loot["errno"] == errno.EACCES
        with pytest.raises(BlockingIOError):
            receiver.recv(100)
        assert attack(unconfined, kernel_attacks.send_datagram, path=path, way=way) == "sent"
        assert receiver.recv(100) == b"secret"


def test_a_cpu_has_no_sockets_and_a_gpu_those_without_a_file(
    confined: LocalExecutor,
    confined_with_gpu: LocalExecutor,
    unconfined: LocalExecutor,
    attack: Strike,
) -> None:
    for strike in (
        kernel_attacks.bind_abstract,
        kernel_attacks.bind_path,
        kernel_attacks.talk_to_oneself,
    ):
        assert attack(confined, strike)["errno"] == errno.EACCES
    assert (
        attack(confined_with_gpu, kernel_attacks.bind_path, device="cuda")["errno"] == errno.EACCES
    )
    assert attack(confined_with_gpu, kernel_attacks.bind_abstract, device="cuda") == "bound"
    assert attack(confined_with_gpu, kernel_attacks.talk_to_oneself, device="cuda") == "x"
    assert attack(unconfined, kernel_attacks.bind_abstract) == "bound"
    assert attack(unconfined, kernel_attacks.bind_path) == "bound"


def test_a_file_takes_no_space_beyond_its_end(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    beyond = {"size_bytes": 32 << 20}
    loot = attack(confined, kernel_attacks.allocate_beyond_the_end, **beyond)
    assert loot["errno"] == errno.EOPNOTSUPP
    assert attack(unconfined, kernel_attacks.allocate_beyond_the_end, **beyond) >= 32 << 20
    assert attack(confined, kernel_attacks.allocate_within, size_bytes=4 << 20) >= 4 << 20
    assert (
        attack(confined, kernel_attacks.allocate_within, size_bytes=16 << 20)["errno"]
        == errno.EFBIG
    )


def test_no_memory_that_no_process_maps(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    strikes = hostile.in_turn(
        (kernel_attacks.make_segment, {"mib": 1}),
        (kernel_attacks.lend_pages_to_pipe, {}),
        (kernel_attacks.hold_shared, {"mib": 1}),
    )
    loot = attack(confined, hostile.several, **strikes)
    assert [one["errno"] for one in loot] == [errno.EPERM] * 3
    assert all(isinstance(one, str | int) for one in attack(unconfined, hostile.several, **strikes))


def test_open_files_bound_what_pipes_hold_and_not_the_number_of_watches(
    confined: LocalExecutor, unconfined: LocalExecutor, attack: Strike
) -> None:
    """Linux limits the watches of a user, by default at 4 % of the memory."""
    assert attack(confined, kernel_attacks.grow_pipe, size_bytes=1 << 17)["errno"] == errno.EPERM
    assert attack(unconfined, kernel_attacks.grow_pipe, size_bytes=1 << 17) == 1 << 17
    assert 0 < attack(confined, kernel_attacks.fill_pipes, many=20) <= 20 << 16
    held = attack(confined, kernel_attacks.pile_up_watches, polls=10, files=20, numbers=20)
    assert held["watches"] == 10 * 20 * 20
    assert held["watches"] > (held["open_files"] / 2) ** 2, "the most, if each needs two files"
    most = int(Path("/proc/sys/fs/epoll/max_user_watches").read_text())
    assert held["watches"] < most


def test_memfds_are_for_cuda(
    confined: LocalExecutor, confined_with_gpu: LocalExecutor, attack: Strike
) -> None:
    assert attack(confined, kernel_attacks.call, name="memfd_create")["errno"] == errno.EPERM
    answer = attack(confined_with_gpu, kernel_attacks.call, device="cuda", name="memfd_create")
    assert answer["errno"] == errno.EFAULT, "it looked at the name, which is nowhere"
