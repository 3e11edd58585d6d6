"""Attacks on what a command's world keeps apart (:mod:`trainer.isolation.kernel.world`).

A world lets a command do what ordinary programs do. Each attack here shows that this reaches
nothing outside, also where no namespaces can be had, and works where nothing confines it.
"""

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import hostile, kernel_attacks, world_attacks
from tests.support.commands import command, command_spec, script
from tests.support.doors import IN_A_WORLD, WITHOUT, unreachable
from tests.support.places import ROOT
from tests.support.processes import of_trials
from tests.support.waiting import wait_until
from trainer.executors.base import Job
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import Measured, TrialFailed

HERE = Layers.detect()
DENIED = {errno.EACCES, errno.EPERM}
SECRET = "the-secret"

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 6 or not HERE.seccomp or not HERE.world,
    reason="this machine allows no worlds, or its kernel cannot keep all promises",
)


@dataclass
class Raid:
    """Trials of a script that attacks from a directory of its own."""

    place: Path

    @property
    def own(self) -> Path:
        return script(self.place / "own", "print(1)")

    @property
    def data(self) -> Path:
        """A directory that the menu declares."""
        return script(self.place / "data", "1", "rows.txt")

    def submit(
        self,
        executor: LocalExecutor,
        attack: Callable[..., Any],
        /,
        *,
        main: str | None = None,
        limits: dict[str, Any] | None = None,
        **arguments: object,
    ) -> tuple[Job, Path]:
        trials = self.place / "c" / "trials"
        number = len(list(trials.iterdir())) if trials.exists() else 0
        trial_dir = hostile.arm(trials / str(number), attack, **arguments)
        program = str(ROOT / "tests/support/hostile_command.py")
        told = command(
            argv=(sys.executable, program, "{out}", str(trial_dir)),
            directory=str(self.own),
            reads=(str(ROOT), str(self.data)),
            curve=None,
            main=main,
        )
        return executor.submit(command_spec(command=told, **(limits or {})), trial_dir), trial_dir

    def result(
        self, executor: LocalExecutor, attack: Callable[..., Any], /, **arguments: Any
    ) -> Measured | TrialFailed:
        job, _ = self.submit(executor, attack, **arguments)
        return job.result().result

    def __call__(
        self, executor: LocalExecutor, attack: Callable[..., Any], /, **arguments: Any
    ) -> Any:
        """Return the loot of an attack."""
        job, trial_dir = self.submit(executor, attack, **arguments)
        result = job.result().result
        assert result.status == "no_score", result
        return hostile.loot(trial_dir)

    def several(
        self, executor: LocalExecutor, *attacks: tuple[Callable[..., Any], dict[str, Any]]
    ) -> list[Any]:
        loot: list[Any] = self(executor, hostile.several, **hostile.in_turn(*attacks))
        return loot


@pytest.fixture
def raid(tmp_path: Path) -> Raid:
    return Raid(tmp_path)


@pytest.fixture(params=["world", pytest.param("no namespaces", marks=pytest.mark.slow)])
def sandboxed(request: pytest.FixtureRequest) -> LocalExecutor:
    name = "confined" if request.param == "world" else "without_namespaces"
    executor: LocalExecutor = request.getfixturevalue(name)
    return executor


@pytest.fixture(scope="module")
def world_alone() -> Iterator[LocalExecutor]:
    """Yield an executor with neither Landlock nor a filter, to show what a world stops by
    itself."""
    layers, entry = Layers(0, seccomp=False, world=True), kernel_attacks.ENTRY
    with LocalExecutor(entry=entry, layers=layers, allow_unsandboxed=True) as executor:
        yield executor


@pytest.fixture(scope="module")
def unfiltered() -> Iterator[LocalExecutor]:
    layers, entry = replace(HERE, seccomp=False), kernel_attacks.ENTRY
    with LocalExecutor(entry=entry, layers=layers) as executor:
        yield executor


def errors(loot: list[Any]) -> list[int | None]:
    """Return what stopped each attack; None for one that worked."""
    return [one.get("errno") if isinstance(one, dict) else None for one in loot]


# --- what listens and waits outside ---------------------------------------------------------------


@pytest.fixture
def listening(raid: Raid, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Yield the addresses of Unix sockets that listen outside, by where they are."""
    name = f"autoresearch-{os.getpid()}"
    shared = Path("/tmp", name)
    sockets = {
        "in the script's directory": str(raid.own / "s"),
        "in a folder of it": str(script(raid.own / "sub", "1", "x.txt") / "s"),
        "in a declared directory": str(raid.data / "s"),
        "in /tmp": str(shared),
        "abstract": f"@{name}",
    }
    with ExitStack() as stack:
        for address in sockets.values():
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address.replace("@", "\0"))
            server.listen()
        monkeypatch.chdir(raid.own)
        relative = stack.enter_context(socket.socket(socket.AF_UNIX))
        relative.bind("relative")
        relative.listen()
        (raid.own / "link").symlink_to(shared)
        linked = {name: str(raid.own / name) for name in ("relative", "link")}
        yield sockets | linked
    shared.unlink()


def test_no_unix_socket_outside_is_reached(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, raid: Raid, listening: dict[str, str]
) -> None:
    attacks = [(hostile.connect_unix, {"address": one}) for one in listening.values()]
    loot = dict(zip(listening, raid.several(sandboxed, *attacks), strict=True))
    refused = {errno.ECONNREFUSED, errno.ENOENT, errno.EACCES}
    assert {name: one for name, one in loot.items() if errors([one])[0] not in refused} == {}
    assert raid.several(unconfined, *attacks) == ["connected"] * len(listening)


def test_nothing_of_the_machines_network_is_reached_or_listed(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, raid: Raid, listening: dict[str, str]
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        attacks = (
            (hostile.connect_tcp, {"port": tcp.getsockname()[1]}),
            (hostile.send_udp, {"port": udp.getsockname()[1]}),
            (world_attacks.list_sockets, {}),
        )
        loot = raid.several(sandboxed, *attacks)
        assert errors(loot[:1])[0] in {errno.ECONNREFUSED, errno.EACCES}
        assert listening["in /tmp"] not in str(loot[2])
        with pytest.raises(BlockingIOError):
            udp.recv(100)
        loot = raid.several(unconfined, *attacks)
        assert loot[0] == "connected"
        assert listening["in /tmp"] in loot[2]
        udp.settimeout(None)
        assert udp.recv(100) == b"secret"


def test_a_world_reaches_no_other_machine(confined: LocalExecutor, raid: Raid) -> None:
    """The addresses are those that RFC 5737 and RFC 3849 keep for examples."""
    addresses = ("192.0.2.1", 9), ("2001:db8::1", 9), ("169.254.169.254", 80)
    attacks = [
        (hostile.do, {"call": "socket.create_connection", "given": [address, 5]})
        for address in addresses
    ]
    assert errors(raid.several(confined, *attacks)) == [errno.ENETUNREACH] * 3


@pytest.mark.skipif(HERE.landlock_abi < 9, reason="only Landlock ABI 9 refuses path sockets")
def test_no_socket_made_during_the_trial_is_reached(confined: LocalExecutor, raid: Raid) -> None:
    """Below that version a socket is reached if it is made in a directory that the trial reads,
    after the trial has begun."""
    address = str(raid.own / "late")
    job, trial_dir = raid.submit(confined, world_attacks.connect_when_told, address=address)
    wait_until((trial_dir / "ready").exists)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        hostile.let_go(trial_dir)
        job.result()
    assert unreachable(hostile.loot(trial_dir))


def test_no_socket_with_a_relative_path_is_reached_in_a_declared_directory(
    confined: LocalExecutor, raid: Raid, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(raid.data / "relative")
    monkeypatch.chdir(raid.data)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("relative")
        server.listen()
        assert raid.several(confined, (hostile.connect_unix, {"address": address})) != ["connected"]


def test_no_pipe_of_another_process_is_read_or_written(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, raid: Raid
) -> None:
    path = raid.own / "pipe"
    os.mkfifo(path)
    with path.open("r+b", buffering=0) as pipe:
        os.set_blocking(pipe.fileno(), False)
        writes = (world_attacks.write_into_special, {"path": str(path)})
        reads = (world_attacks.read_from_special, {"path": str(path)})
        pipe.write(b"kept")
        for one in raid.several(sandboxed, reads, writes):
            assert one == "a file" or unreachable(one)
        assert pipe.read(100) == b"kept"
        pipe.write(b"kept")
        assert raid.several(unconfined, reads, writes) == ["kept", "written"]
        assert pipe.read(100) == b"secret"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_no_device_is_opened(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, raid: Raid
) -> None:
    """Each is /dev/full by another name: a write to it cannot succeed."""
    paths = raid.own / "full", raid.data / "full"
    for path in paths:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    attacks = [
        (attack, {"path": str(path)})
        for path in paths
        for attack in (world_attacks.read_from_special, world_attacks.write_into_special)
    ]
    loot = raid.several(sandboxed, *attacks, (world_attacks.make_device, {}))
    assert unreachable(loot[-1])
    in_world = "no namespaces" not in sandboxed.describe()
    for one, (attack, given) in zip(loot, attacks, strict=False):
        declared = str(raid.data) in given["path"]
        if not in_world and declared and attack is world_attacks.read_from_special:
            continue  # the menu declares that it is read
        assert one == "a file" or unreachable(one), given
    assert raid.several(unconfined, *attacks[::2]) == ["\0" * 6] * 2


# --- the kernel and the first process -------------------------------------------------------------

OF_THE_KERNEL = (
    "/proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches"
    " /proc/sys/kernel/sched_rt_runtime_us /proc/sys/net/core/wmem_max /proc/sysrq-trigger"
    " /proc/irq/default_smp_affinity /proc/mtrr /proc/kmsg"
    " /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/ksm/run /sys/power/state"
    " /sys/fs/cgroup/cgroup.procs /sys/devices/system/cpu/cpu0/uevent /dev/kmsg /dev/mem"
).split()


def test_no_setting_of_the_machine_can_be_written(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, world_alone: LocalExecutor, raid: Raid
) -> None:
    """Also by a world alone."""
    attacks = [(world_attacks.open_to_write, {"path": path}) for path in OF_THE_KERNEL]
    for executor in (sandboxed, world_alone):
        loot = dict(zip(OF_THE_KERNEL, raid.several(executor, *attacks), strict=True))
        assert {name: one for name, one in loot.items() if not unreachable(one)} == {}
    if os.geteuid() == 0:
        opened = errors(raid.several(unconfined, *attacks)).count(None)
        assert opened >= 5, "root may write the machine's settings"


@pytest.mark.parametrize("main", [None, "main"])
def test_its_parent_is_closed_to_a_command(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, raid: Raid, main: str | None
) -> None:
    """In a world: the first process, which reports how the command ended."""
    attacks = [
        (world_attacks.meddle_with_parent, {"way": way}) for way in world_attacks.WAYS_TO_PARENT
    ]
    opened = world_attacks.open_files_of_parent, {}
    orders = hostile.in_turn(opened, *attacks)
    first, *loot = raid(sandboxed, hostile.several, main=main, **orders)
    assert first == []
    assert {one if isinstance(one, str) else one["errno"] for one in loot} <= {
        *DENIED,
        errno.ENOENT,
        errno.ESRCH,
    }
    first, *loot = raid(unconfined, hostile.several, main=main, **hostile.in_turn(opened, *attacks))
    assert first != []
    # A program has other addresses than its parent, so there is nothing at these.
    assert set(errors(loot[:4])) <= {None, errno.EFAULT}


@pytest.mark.parametrize("main", [None, "main"])
def test_no_report_of_a_commands_end_is_forged(
    sandboxed: LocalExecutor, raid: Raid, main: str | None
) -> None:
    result = raid.result(sandboxed, world_attacks.forge_everywhere, main=main, code=37)
    assert isinstance(result, TrialFailed)
    assert result.status == "crash"
    assert "exit code 37" in result.message


# --- mounts and namespaces ------------------------------------------------------------------------


def test_no_mount_of_its_world_can_be_changed(
    confined: LocalExecutor, unfiltered: LocalExecutor, world_alone: LocalExecutor, raid: Raid
) -> None:
    """The filter, Landlock, the missing capabilities and the kernel's lock on mounts of another
    user namespace each refuse it."""
    script(raid.own, SECRET, ".env")
    cover = str(raid.own / ".env")
    loot = raid(confined, world_attacks.change_mounts, cover=cover)
    assert loot == dict.fromkeys(world_attacks.CALLS_ON_MOUNTS, errno.EPERM)
    loot = raid(unfiltered, world_attacks.change_mounts, cover=cover)
    assert set(loot.values()) == {errno.EPERM}
    loot = raid(world_alone, world_attacks.change_mounts, cover=cover)
    assert set(loot.values()) == {errno.EPERM}
    loot = raid(confined, world_attacks.change_mounts, cover=cover, as_owner=True)
    assert set(loot.values()) == {errno.EPERM}
    for executor in (unfiltered, world_alone):
        loot = raid(executor, world_attacks.change_mounts, cover=cover, as_owner=True)
        assert loot["unshare"] == 0
        assert loot["umount2"] in {errno.EPERM, errno.EINVAL}
        assert loot["mount"] == loot["mount_setattr"] == errno.EPERM


def test_no_other_namespace_is_entered(
    confined: LocalExecutor, unfiltered: LocalExecutor, raid: Raid
) -> None:
    attacks = (
        (world_attacks.unshare_user, {}),
        (kernel_attacks.enter_namespaces, {}),
        (world_attacks.enter_namespaces_of_parent, {}),
    )
    assert errors(raid.several(confined, *attacks)) == [errno.EPERM] * 3
    assert errors(raid.several(unfiltered, *attacks[:2])) == [None] * 2


# --- what lasts outside ---------------------------------------------------------------------------


def test_no_file_is_left_that_runs_as_its_owner(
    sandboxed: LocalExecutor, unconfined: LocalExecutor, raid: Raid
) -> None:
    attacks = [(world_attacks.set_id, {"way": way}) for way in world_attacks.WAYS_TO_SET_ID]
    loot = raid.several(sandboxed, *attacks)
    left = list((raid.place / "c").rglob("program-*"))
    assert len(left) == len(attacks)
    assert [path for path in left if path.stat().st_mode & 0o6000] == []
    in_world = "no namespaces" not in sandboxed.describe()
    if in_world:
        assert errors(loot) == [errno.EPERM] * 5 + [None]
    loot = raid.several(unconfined, *attacks[:5])
    assert [mode & 0o6000 != 0 for mode in loot if isinstance(mode, int)] == [True] * 5


def test_what_ignores_signals_ends_with_its_command(sandboxed: LocalExecutor, raid: Raid) -> None:
    beat = raid.place / "c" / "trials" / "0" / "beat"
    limits = {"wall_s": 3}
    result = raid.result(sandboxed, world_attacks.outlive, limits=limits, beat=str(beat))
    assert result.status == "timeout"
    assert beat.stat().st_size > 0
    assert of_trials(sandboxed) == []


@pytest.mark.slow
@pytest.mark.parametrize("world", [True, False])
def test_a_world_ends_with_its_supervisor_and_its_server(tmp_path: Path, world: bool) -> None:
    """Without namespaces, processes that left the session live on: nobody is left to end them."""
    trial_dir = tmp_path / "c" / "trials" / "t000001"
    beat = trial_dir / "beat"
    hostile.arm(trial_dir, world_attacks.outlive, beat=str(beat))
    how = IN_A_WORLD if world else WITHOUT
    words = [sys.executable, "-m", "tests.support.lone_supervisor", str(trial_dir), how]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        server = int(supervisor.stdout.readline())
        wait_until(lambda: beat.exists() and beat.stat().st_size > 20)
        left = psutil.Process(server).children(recursive=True)
        for pid in (supervisor.pid, server):
            os.kill(pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(left, timeout=None if world else 1)
    try:
        assert (alive == []) == world
    finally:
        for process in alive:
            process.kill()


# --- memory in no process -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attack", "arguments"),
    [
        (world_attacks.fill_folder, {"folder": "/dev/shm", "mib": 190}),
        (world_attacks.fill_folder, {"folder": "/tmp", "mib": 190}),
        (world_attacks.map_shared_memory, {"mib": 190}),
        (kernel_attacks.hold_in_sockets, {"pairs": 600}),
        (world_attacks.hold_shared_unseen, {"mib": 300}),
    ],
)
def test_memory_in_no_process_counts(
    confined: LocalExecutor, raid: Raid, attack: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    result = raid.result(confined, attack, limits={"memory_gib": 0.2}, **arguments)
    assert result.status == "oom", result


@pytest.mark.parametrize("attack", [kernel_attacks.hold_memfd, world_attacks.hold_in_flight])
def test_memory_that_may_be_open_nowhere_is_missing(
    confined: LocalExecutor, raid: Raid, attack: Callable[..., Any]
) -> None:
    assert raid(confined, attack, mib=300)["errno"] == errno.ENOSYS


def test_shared_memory_within_the_limit_counts_once(confined: LocalExecutor, raid: Raid) -> None:
    attack, limits = world_attacks.hold_shared_unseen, {"memory_gib": 0.35}
    result = raid.result(confined, attack, limits=limits, mib=150)
    assert result.status == "no_score", result


@pytest.mark.slow
def test_sockets_count_where_no_namespaces_can_be_had(
    without_namespaces: LocalExecutor, raid: Raid
) -> None:
    """They are the only memory in no process that a command has there."""
    hold, limits = kernel_attacks.hold_in_sockets, {"memory_gib": 0.2}
    result = raid.result(without_namespaces, hold, limits=limits, pairs=600)
    assert result.status == "oom", result
