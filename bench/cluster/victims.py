"""Kill one of the processes of a campaign on a cluster, at random."""

import contextlib
import random
import signal
import time
from collections.abc import Callable

import psutil

from bench.cluster.driver import Driver
from tests.support.ray_clusters import LocalCluster, LocalNode

_SERVER = "trainer.isolation.forkserver"
_SOME_S = 20.0
"""Time limit to find a running trial, which takes only a fraction of a second."""


class Victims:
    """The processes of one campaign; each kind's method kills one and returns whether it did."""

    def __init__(self, cluster: LocalCluster, driver: Driver) -> None:
        self._cluster = cluster
        self._driver = driver
        self.kinds: dict[str, Callable[[random.Random], bool]] = {
            "driver, KILL": lambda _chance: driver.end(signal.SIGKILL),
            "driver, INT": lambda _chance: driver.end(signal.SIGINT),
            "driver, TERM twice": lambda _chance: driver.end(signal.SIGTERM, signal.SIGTERM),
            "lane's actor": self._actor,
            "fork server": self._server,
            "raylet": self._raylet,
            "node": self._node,
            "trial's process": self._trial,
        }

    def _actor(self, chance: random.Random) -> bool:
        return _kill_one([actor for node in self._workers() for actor in node.actors()], chance)

    def _server(self, chance: random.Random) -> bool:
        return _kill_one([server for server, _ in self._servers()], chance)

    def _trial(self, chance: random.Random) -> bool:
        give_up_at = time.monotonic() + _SOME_S
        while time.monotonic() < give_up_at:
            trials = [child for _, children in self._servers() for child in children]
            if _kill_one(trials, chance):
                return True
            time.sleep(0.01)
        return False

    def _raylet(self, chance: random.Random) -> bool:
        """Kill a raylet alone; then remove the rest of its node and start Ray there again."""
        node = chance.choice(self._workers())
        node.raylet.kill()
        time.sleep(chance.uniform(0.0, 2.0))
        node.lose()
        self._cluster.add(node.name)
        return True

    def _node(self, chance: random.Random) -> bool:
        node = chance.choice(self._workers())
        node.lose()
        time.sleep(chance.uniform(0.0, 2.0))
        self._cluster.add(node.name)
        return True

    def _workers(self) -> list[LocalNode]:
        return [node for name, node in self._cluster.nodes.items() if name != "head"]

    def _servers(self) -> list[tuple[psutil.Process, list[psutil.Process]]]:
        """Return the fork servers, each with the processes that it has forked."""
        there = [p for node in self._workers() for p in node.processes(_SERVER)]
        pids = {process.pid for process in there}
        return [(p, _children(p)) for p in there if _parent(p) not in pids]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children())
    except psutil.NoSuchProcess:
        return []


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return 0


def _kill_one(processes: list[psutil.Process], chance: random.Random) -> bool:
    if not processes:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        chance.choice(processes).kill()
        return True
    return False
