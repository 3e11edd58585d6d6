"""Give each trial a cgroup of its own, if the machine delegates one to this process.

The kernel then counts what polling of processes cannot: memory between two polls, memory in no
process (memfds, buffers of sockets and pipes), and threads as they are created. It ends a trial
that exceeds its limits, and everything the trial left running, wherever it fled to.

This needs Linux's unified hierarchy (Documentation/admin-guide/cgroup-v2.rst) and a delegated
cgroup: one that this user may change, with the memory and pids controllers, which systemd marks as
delegated, and in which only this process, its ancestors and its children run. ``systemd-run --user
--scope -p Delegate=yes autoresearch loop`` creates one. A cgroup whose children have controllers
may hold no processes itself, so present ones move into the child LEAF first.
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
from trainer.isolation.process_tree import counts_in, descendants
from trainer.schema import Limits

LEAF = "autoresearch"
"""Child cgroup of this process, its fork server and its other children."""
_TRIAL = "trial-"
_CONTROLLERS = ("memory", "pids")
_GIB = 1 << 30
_TRIES = 5
_EMPTY_S = 2.0
"""Seconds that a group may take to become empty after SIGKILL."""


@dataclass(frozen=True, slots=True)
class TrialGroup:
    """The cgroup of one trial. Its supervisor creates it, its process enters it, its supervisor
    ends it."""

    directory: Path

    @property
    def held_bytes(self) -> int:
        """Bytes that its processes hold or that were allocated on their behalf, without reclaimable
        file pages. 0 if unreadable."""
        held = _number(self.directory / "memory.current")
        counts = counts_in(self.directory / "memory.stat")
        given_up = counts.get("file", 0) - counts.get("shmem", 0)
        return max(0, held - given_up) + _number(self.directory / "memory.swap.current")

    @property
    def oom_kills(self) -> int:
        """Processes of the trial that the kernel killed at its memory limit."""
        return counts_in(self.directory / "memory.events").get("oom_kill", 0)

    @property
    def refused_tasks(self) -> int:
        """Number of times the trial was refused a process or thread for having too many."""
        return counts_in(self.directory / "pids.events").get("max", 0)

    def kill(self) -> None:
        """Send SIGKILL to everything in it, and to what it forks meanwhile."""
        with contextlib.suppress(OSError):
            (self.directory / "cgroup.kill").write_text("1")

    def close(self) -> None:
        """End what is left in it, and remove it; a group that resists is left for the next
        campaign."""
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
    """Place where cgroups for trials can be created."""

    directory: Path

    @classmethod
    def offered(cls, root: Path = Path("/")) -> Groups | None:
        """Return the place unchanged; None if the machine delegates none.

        :param root: where /proc and /sys are found.
        """
        own = _own_directory(root)
        if own is None:
            return None
        if own.name == LEAF and _counts_children(own.parent):
            return cls(own.parent)  # another or an earlier executor has prepared it
        return cls(own) if _is_delegated(own, root) and _is_ours(own) else None

    @classmethod
    def take(cls, root: Path = Path("/")) -> Groups | None:
        """Return the prepared place, after moving this process into a child. None as for
        :meth:`offered`."""
        groups = cls.offered(root)
        if groups is None:
            return None
        if not _counts_children(groups.directory) and not _make_ready(groups.directory):
            return None
        groups.sweep()
        return groups

    def make(self, trial_id: str, limits: Limits) -> TrialGroup:
        """Create an empty group with a trial's limits.

        :raises MachineryError: if the kernel refuses.
        """
        name = f"{_TRIAL}{os.getpid()}-{trial_id}-"
        group = None
        try:
            group = TrialGroup(Path(tempfile.mkdtemp(prefix=name, dir=self.directory)))
            (group.directory / "memory.oom.group").write_text("1")
            # One more than allowed, so that the supervisor sees a trial that exceeds the limit.
            (group.directory / "pids.max").write_text(str(limits.tasks + 1))
            if limits.memory_gib is not None:
                (group.directory / "memory.max").write_text(str(int(limits.memory_gib * _GIB)))
                swap = group.directory / "memory.swap.max"
                if swap.exists():  # some kernels do not swap
                    swap.write_text("0")
        except OSError as error:
            if group is not None:
                group.close()
            raise MachineryError(
                f"a cgroup of trial {trial_id} cannot be made in {self.directory}"
                f" ({error.strerror}); run again without delegation (no Delegate=yes), or fix it"
            ) from error
        return group

    def sweep(self) -> None:
        """Remove groups that killed campaigns left behind, if nothing runs in them. An empty one
        may belong to a living campaign whose trial is about to enter it."""
        for left in self.directory.glob(f"{_TRIAL}*"):
            maker = left.name.removeprefix(_TRIAL).partition("-")[0]
            if not (maker.isdigit() and psutil.pid_exists(int(maker))):
                with contextlib.suppress(OSError):
                    left.rmdir()


def enter(directory: Path) -> None:
    """Move this process into a trial's group, before it does anything that the trial decides.

    :raises MachineryError: if the kernel refuses.
    """
    try:
        (directory / "cgroup.procs").write_text("0")
    except OSError as error:
        raise MachineryError(
            f"the trial cannot enter its cgroup {directory} ({error.strerror}); run again without"
            " delegation (no Delegate=yes), or fix it"
        ) from error


# --- what this machine delegates ---------------------------------------------------------------


def _own_directory(root: Path) -> Path | None:
    """Return the directory of this process's cgroup, if it has the controllers."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    for path in (Path(line[3:]) for line in lines if line.startswith("0::/")):
        for left, _, right in (mount.partition(" - ") for mount in mounts):
            fields = left.split()
            if right.split()[:1] == ["cgroup2"] and path.is_relative_to(fields[3]):
                directory = root / fields[4].lstrip("/") / path.relative_to(fields[3])
                return directory if _names_controllers(directory / "cgroup.controllers") else None
    return None


def _names_controllers(file: Path) -> bool:
    try:
        return set(_CONTROLLERS) <= set(file.read_text().split())
    except OSError:
        return False


def _counts_children(directory: Path) -> bool:
    counted = _names_controllers(directory / "cgroup.subtree_control")
    return counted and os.access(directory, os.W_OK)


def _is_delegated(directory: Path, root: Path) -> bool:
    """Return whether it may be changed, and systemd does not manage it."""
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
    """Return whether only this process, its ancestors and its descendants run there."""
    above = (process.pid for process in psutil.Process().parents())
    own = {os.getpid(), *above, *descendants(os.getpid())}
    with contextlib.suppress(OSError):
        return set((directory / "cgroup.procs").read_text().split()) <= set(map(str, own))
    return False


def _make_ready(directory: Path) -> bool:
    """Enable the controllers for its children; if that fails, move everything back and return
    False."""
    controllers = " ".join(f"+{name}" for name in _CONTROLLERS)
    leaf = directory / LEAF
    for _ in range(_TRIES):  # a process forked meanwhile is still there, which makes it busy
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
