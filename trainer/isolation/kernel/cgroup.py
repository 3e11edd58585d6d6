"""A cgroup of its own for each trial, where the machine hands this process some to make.

The kernel then counts what no look at processes can: memory between two looks, memory that is in no
process (memfds, buffers of sockets and pipes), and threads as they are made. It ends the trial
where that goes over, and ends whatever the trial left running, wherever it fled to.

Linux, the unified hierarchy (Documentation/admin-guide/cgroup-v2.rst). It takes a cgroup that is
delegated: one that this user may change, with the memory and pids controllers, that systemd says is
not its own, and in which nothing runs but this process, what started it and what it started.
``systemd-run --user --scope -p Delegate=yes autoresearch loop`` makes such a one. A cgroup with
children that count may hold no processes itself, so those that are there move one floor down first,
into LEAF.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from autoresearch.errors import MachineryError
from trainer.isolation.process_tree import descendants
from trainer.spec import Limits

LEAF = "autoresearch"
"""Where this process, its fork server and its other children are meanwhile."""
_TRIAL = "trial-"
_CONTROLLERS = ("memory", "pids")
_GIB = 1 << 30
_TRIES = 5
_EMPTY_S = 2.0
"""How long a group may take to become empty after SIGKILL."""


@dataclass(frozen=True, slots=True)
class TrialGroup:
    """The cgroup of one trial. Its supervisor makes it, its process enters it, its supervisor ends
    it."""

    directory: Path

    @property
    def held_bytes(self) -> int:
        """What its processes hold, and what is in none of them but was asked for by one; pages of
        files that the kernel would give up at once are not held. 0 where it cannot be read."""
        held = _number(self.directory / "memory.current")
        counts = _counts(self.directory / "memory.stat")
        given_up = counts.get("file", 0) - counts.get("shmem", 0)
        return max(0, held - given_up) + _number(self.directory / "memory.swap.current")

    @property
    def oom_kills(self) -> int:
        """Processes of the trial that the kernel ended at its limit of memory."""
        return _counts(self.directory / "memory.events").get("oom_kill", 0)

    @property
    def refused_tasks(self) -> int:
        """Times that it was refused a process or thread for having too many."""
        return _counts(self.directory / "pids.events").get("max", 0)

    def kill(self) -> None:
        """SIGKILL for everything in it, and for what it forks meanwhile."""
        with contextlib.suppress(OSError):
            (self.directory / "cgroup.kill").write_text("1")

    def close(self) -> None:
        """End what is left in it, and remove it; one that will not go is left for the next
        campaign to remove."""
        self.kill()
        give_up_at = time.monotonic() + _EMPTY_S
        while time.monotonic() < give_up_at:
            with contextlib.suppress(OSError):
                self.directory.rmdir()
            if not self.directory.exists():
                return
            time.sleep(0.002)


@dataclass(frozen=True, slots=True)
class Groups:
    """Where cgroups for trials can be made."""

    directory: Path

    @classmethod
    def offered(cls, root: Path = Path("/")) -> Groups | None:
        """The place, as it is; None where the machine hands over none.

        :param root: where /proc and /sys are looked for.
        """
        own = _own_directory(root)
        if own is None:
            return None
        if own.name == LEAF and _counts_children(own.parent):
            return cls(own.parent)  # another executor, or the one before, has made it ready
        return cls(own) if _is_delegated(own, root) and _is_ours(own) else None

    @classmethod
    def take(cls, root: Path = Path("/")) -> Groups | None:
        """The place, made ready: this process moves one floor down. None as for :meth:`offered`."""
        groups = cls.offered(root)
        if groups is None:
            return None
        if not _counts_children(groups.directory) and not _make_ready(groups.directory):
            return None
        groups.sweep()
        return groups

    def make(self, trial_id: str, limits: Limits) -> TrialGroup:
        """A group with a trial's limits, still empty.

        :raises MachineryError: where the kernel refuses.
        """
        name = f"{_TRIAL}{os.getpid()}-{trial_id}-"
        group = None
        try:
            group = TrialGroup(Path(tempfile.mkdtemp(prefix=name, dir=self.directory)))
            (group.directory / "memory.oom.group").write_text("1")
            # One more than allowed, so that the supervisor sees a trial that goes over.
            (group.directory / "pids.max").write_text(str(limits.tasks + 1))
            if limits.memory_gib is not None:
                (group.directory / "memory.max").write_text(str(int(limits.memory_gib * _GIB)))
                swap = group.directory / "memory.swap.max"
                if swap.exists():  # there are kernels that do not swap
                    swap.write_text("0")
        except OSError as error:
            if group is not None:
                group.close()
            raise MachineryError(
                f"a cgroup of trial {trial_id} cannot be made in {self.directory}"
                f" ({error.strerror}); run again without delegation (no Delegate=yes), or mend it"
            ) from error
        return group

    def sweep(self) -> None:
        """Remove what campaigns that were killed left behind, if nothing runs in it. One that is
        empty may be a living campaign's, whose trial is about to enter it."""
        for left in self.directory.glob(f"{_TRIAL}*"):
            maker = left.name.removeprefix(_TRIAL).partition("-")[0]
            if not (maker.isdigit() and psutil.pid_exists(int(maker))):
                with contextlib.suppress(OSError):
                    left.rmdir()


def enter(directory: Path) -> None:
    """Move this process into a trial's group, before it does anything that the trial decides.

    :raises MachineryError: where the kernel refuses.
    """
    try:
        (directory / "cgroup.procs").write_text("0")
    except OSError as error:
        raise MachineryError(
            f"the trial cannot enter its cgroup {directory} ({error.strerror}); run again without"
            " delegation (no Delegate=yes), or mend it"
        ) from error


# --- what this machine hands over ---------------------------------------------------------------


def _own_directory(root: Path) -> Path | None:
    """The directory of this process's cgroup, where it has the controllers."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    path = next((Path(line[3:]) for line in lines if line.startswith("0::/")), None)
    for mount in mounts if path is not None else ():
        left, _, right = mount.partition(" - ")
        fields = left.split()
        if right.split()[:1] == ["cgroup2"] and path is not None and path.is_relative_to(fields[3]):
            directory = root / fields[4].lstrip("/") / path.relative_to(fields[3])
            return directory if _has_controllers(directory) else None
    return None


def _has_controllers(directory: Path) -> bool:
    try:
        there = (directory / "cgroup.controllers").read_text().split()
    except OSError:
        return False
    return set(_CONTROLLERS) <= set(there)


def _counts_children(directory: Path) -> bool:
    try:
        counted = (directory / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return set(_CONTROLLERS) <= set(counted) and os.access(directory, os.W_OK)


def _is_delegated(directory: Path, root: Path) -> bool:
    """Whether it may be changed, and is not one that systemd changes itself."""
    changed = (directory, directory / "cgroup.procs", directory / "cgroup.subtree_control")
    if not all(os.access(path, os.W_OK) for path in changed):
        return False
    if not (root / "run/systemd/system").exists():
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(directory, name) == b"1":
                return True
    return False


def _is_ours(directory: Path) -> bool:
    """Whether nothing runs there but this process, its ancestors and what it started."""
    above = (process.pid for process in psutil.Process().parents())
    own = {os.getpid(), *above, *descendants(os.getpid())}
    try:
        there = {int(line) for line in (directory / "cgroup.procs").read_text().split()}
    except (OSError, ValueError):
        return False
    return there <= own


def _make_ready(directory: Path) -> bool:
    """Have its children counted; False, and everything where it was, where that cannot be."""
    controllers = " ".join(f"+{name}" for name in _CONTROLLERS)
    leaf = directory / LEAF
    for _ in range(_TRIES):  # what was forked meanwhile is still there, which makes it busy
        try:
            leaf.mkdir(exist_ok=True)
            _move(directory, leaf)
            (directory / "cgroup.subtree_control").write_text(controllers)
        except OSError:
            continue
        return True
    with contextlib.suppress(OSError):
        _move(leaf, directory)
        leaf.rmdir()
    return False


def _move(source: Path, destination: Path) -> None:
    for pid in (source / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (destination / "cgroup.procs").write_text(pid)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _counts(path: Path) -> dict[str, int]:
    """``name number``, a line each."""
    try:
        fields = (line.split() for line in path.read_text().splitlines())
        return {name: int(number) for name, number in fields}
    except (OSError, ValueError):
        return {}
