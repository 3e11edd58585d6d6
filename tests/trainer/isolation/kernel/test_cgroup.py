"""Recognition of one's own cgroup, on files like the kernel's.

Tests of the kernel's behavior need a delegated cgroup: tests/docker/test_delegated.py boots a
kernel that delegates one, and runs test_delegated_cgroup.py in it.
"""

import os
from pathlib import Path

import pytest

from tests.support.trials import trial_spec
from trainer.isolation.kernel.cgroup import LEAF, Groups, TrialGroup

MOUNT = "31 24 0:27 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw"


class Machine:
    """The files of /proc and /sys that the code reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scope = root / "sys/fs/cgroup/user.slice/run-7.scope"
        self.scope.mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        self.put("proc/self/cgroup", "1:name=systemd:/old\n0::/user.slice/run-7.scope\n")
        self.put("proc/self/mountinfo", MOUNT.format(root="/") + "\n")
        self.give(self.scope)

    def put(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def give(self, directory: Path, *, controllers: str = "cpu memory pids") -> None:
        (directory / "cgroup.controllers").write_text(f"{controllers}\n")
        (directory / "cgroup.procs").write_text(f"{os.getpid()}\n")
        (directory / "cgroup.subtree_control").write_text("")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path)


def test_a_delegated_one_is_taken_and_made_ready(machine: Machine) -> None:
    assert Groups.take(machine.root) == Groups(machine.scope)
    assert (machine.scope / LEAF / "cgroup.procs").read_text() == str(os.getpid())
    assert (machine.scope / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_the_next_executor_finds_it_one_floor_up(machine: Machine) -> None:
    leaf = machine.scope / LEAF
    leaf.mkdir()
    machine.give(leaf)
    machine.put("proc/self/cgroup", f"0::/user.slice/run-7.scope/{LEAF}\n")
    assert Groups.offered(machine.root) == Groups(leaf), "one's own, of that name by chance"
    (machine.scope / "cgroup.subtree_control").write_text("memory pids\n")
    assert Groups.take(machine.root) == Groups(machine.scope)


def test_where_the_container_has_a_part_of_the_tree(machine: Machine) -> None:
    machine.put("proc/self/cgroup", "0::/user.slice/run-7.scope\n")
    machine.put("proc/self/mountinfo", MOUNT.format(root="/user.slice") + "\n")
    inner = machine.root / "sys/fs/cgroup/run-7.scope"
    inner.mkdir()
    machine.give(inner)
    assert Groups.take(machine.root) == Groups(inner)


@pytest.mark.parametrize(
    "lacking", ["version 2", "mount", "memory", "to itself", "systemd's word", "one's own tree"]
)
def test_no_other_is_touched(machine: Machine, lacking: str) -> None:
    match lacking:
        case "version 2":
            machine.put("proc/self/cgroup", "4:memory:/user.slice/run-7.scope\n")
        case "mount":
            machine.put("proc/self/mountinfo", "22 1 0:3 / /proc rw - proc proc rw\n")
        case "memory":
            machine.give(machine.scope, controllers="cpu pids")
        case "to itself":
            machine.put(
                "sys/fs/cgroup/user.slice/run-7.scope/cgroup.procs", f"{os.getpid()}\n999999999\n"
            )
        case "systemd's word":
            (machine.root / "run/systemd/system").mkdir(parents=True)
        case _:
            machine.put("proc/self/cgroup", "0::/../outside\n")
    assert Groups.take(machine.root) is None
    assert not (machine.scope / LEAF).exists()


def test_systemds_word_is_taken(machine: Machine) -> None:
    (machine.root / "run/systemd/system").mkdir(parents=True)
    try:
        os.setxattr(machine.scope, "user.delegate", b"1")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    assert Groups.take(machine.root) == Groups(machine.scope)


def test_a_trials_limits(tmp_path: Path) -> None:
    group = Groups(tmp_path).make("t000001", trial_spec(memory_gib=0.5, tasks=40).limits)
    assert (group.directory / "memory.max").read_text() == str(1 << 29)
    assert (group.directory / "memory.oom.group").read_text() == "1"
    assert (group.directory / "pids.max").read_text() == "41"


def test_two_campaigns_in_one_place_leave_each_other_alone(tmp_path: Path) -> None:
    """One campaign has made its trial's group, which the trial has not entered yet, when the other
    looks for the remains of killed campaigns."""
    groups = Groups(tmp_path)
    mine = groups.make("t000001", trial_spec().limits)
    other = groups.make("t000001", trial_spec().limits)
    assert mine.directory != other.directory, "each has its first trial"
    assert not (mine.directory / "cgroup.kill").exists()
    for file in other.directory.iterdir():
        file.unlink()  # the kernel's own files disappear with the directory
    (tmp_path / "trial-999999999-t000001-x").mkdir()
    groups.sweep()
    assert other.directory.exists()
    assert not (tmp_path / "trial-999999999-t000001-x").exists()


def test_a_place_that_cannot_be_made_ready_is_left_as_it_was(machine: Machine) -> None:
    control = machine.scope / "cgroup.subtree_control"
    control.unlink()
    control.mkdir()  # writing to it fails
    assert Groups.take(machine.root) is None
    assert (machine.scope / "cgroup.procs").read_text().strip() == str(os.getpid())


def test_pages_of_files_are_not_held(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 500\nfile 300\nshmem 120\nkernel 200\n")
    (tmp_path / "memory.swap.current").write_text("7\n")
    assert TrialGroup(tmp_path).held_bytes == 1000 - (300 - 120) + 7
