"""Provide lanes on a small Ray cluster of this machine, for trials that a test arms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import hostile
from tests.support.ray_clusters import LocalCluster, local_cluster
from tests.support.waiting import wait_until
from trainer.executors.base import Executor, Job
from trainer.executors.lanes import Lanes
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.lane import RayLane
from trainer.schema import TrialSpec

_LEFT = ("pids", "loot.json", "go")
"""Files that a trial's attack and its test exchange in the trial's directory."""


@dataclass
class Opened:
    """Hold a cluster of two nodes, and this process's connection to it."""

    nodes: LocalCluster
    cluster: RayCluster


@contextmanager
def opened_cluster(*names: str) -> Iterator[Opened]:
    """Open a cluster of these nodes, once all of them have joined."""
    with ExitStack() as stack:
        nodes = stack.enter_context(local_cluster(*names))
        cluster = stack.enter_context(RayCluster(nodes.address))
        wait_until(lambda: len(cluster.machines()) == len(names) + 1)
        yield Opened(nodes, cluster)


class Armed(Lanes):
    """Run trials on one lane with the attacks that the test has armed them with.

    The lane copies the order to the trial's node, and the files that attacks leave there are shared
    with the trial's directory here.
    """

    def __init__(self, lane: RayLane) -> None:
        super().__init__([lane])
        self.lane = lane

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        order = trial_dir / "attack.json"
        if order.exists() and self.lane.home.exists():
            there = self.lane.home / trial_dir.name
            there.mkdir(exist_ok=True)
            (there / order.name).write_bytes(order.read_bytes())
            for name in _LEFT:
                (there / name).unlink(missing_ok=True)
                (there / name).touch()
                (trial_dir / name).unlink(missing_ok=True)  # a lost submission is repeated
                os.link(there / name, trial_dir / name)
        return super().submit(spec, trial_dir)


_shared = ExitStack()
_found: list[Opened] = []
_taken: set[str] = set()
"""Names of nodes in use: a lane takes all of a node's resources."""


@contextmanager
def ray_lane() -> Iterator[Executor]:
    """Yield one lane, alone on its node, on a cluster of two that a module's tests share."""
    if not _found:
        _found.append(_shared.enter_context(opened_cluster("spark1", "spark2")))
    free = next(name for name in ("spark1", "spark2") if name not in _taken)
    [lane], _ = _found[0].cluster.open_lanes(
        1, only=[free], entry=hostile.ENTRY, allow_unsandboxed=True
    )
    _taken.add(free)
    with Armed(lane) as armed:
        yield armed
    _taken.remove(free)


def close_shared_cluster() -> None:
    """Close the shared cluster after the last test, if there is one."""
    _found.clear()
    _shared.close()
