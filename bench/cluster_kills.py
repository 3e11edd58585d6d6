"""A campaign on a Ray cluster of this machine whose processes are killed at random."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.figure import Figure
from tests.support.campaigns import Toy
from tests.support.ray_clusters import LocalCluster, LocalNode, local_cluster, until

BETWEEN_S = (2.0, 60.0)
"""From one kill to the next, at random: into openings, which take ten seconds and more here, races,
and the time between."""


def survive(kills: int, names: tuple[str, ...], seed: int = 0) -> list[Figure]:
    """So many kills of drivers, actors, raylets and trials; what was lost by them."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, local_cluster(*names) as cluster:
        night = _Night(Toy(Path(directory)), cluster, len(names))
        night.begin()
        for number in range(kills):
            night.go_on()
            time.sleep(chance.uniform(*BETWEEN_S))
            chance.choice(night.victims)(chance)
            night.compare(number)
        night.end()
        return night.figures(kills)


class _Night:
    """A loop that is started again after whatever ended it."""

    def __init__(self, toy: Toy, cluster: LocalCluster, lanes: int) -> None:
        self._toy, self._cluster = toy, cluster
        self._asked = [f"--executor=ray:{cluster.address}", f"--lanes={lanes}", "--threads=1"]
        self._loop: subprocess.Popen[str] | None = None
        self._rows: list[bytes] = []
        self.lost_rows = 0
        self.victims: list[Callable[[random.Random], None]] = [
            self._kill_driver,
            self._kill_actor,
            self._kill_node,
            self._kill_trial,
        ]

    def begin(self) -> None:
        """Until the first iteration is at rest: a night that never gets there shows nothing."""
        self.go_on()
        journal = self._toy.campaign / "trajectory.jsonl"
        until(lambda: journal.exists() and self._toy.iterations() != [], 600)

    def go_on(self) -> None:
        """Start the loop where it does not run; a campaign that paused goes on like that too."""
        if self._loop is None or self._loop.poll() is not None:
            self._loop = self._toy.start(10_000, *self._asked)

    def compare(self, number: int) -> None:
        """Every row that was there is there."""
        journal = self._toy.campaign / "trajectory.jsonl"
        data = journal.read_bytes() if journal.exists() else b""
        rows = data.split(b"\n")[:-1]  # a torn line is none yet
        self.lost_rows += rows[: len(self._rows)] != self._rows
        self._rows = rows
        print(f"kill {number + 1}: {len(rows)} rows")

    def end(self) -> None:
        """Stop as a person would."""
        if self._loop is not None:
            self._loop.send_signal(signal.SIGINT)
            self._loop.communicate()

    def figures(self, kills: int) -> list[Figure]:
        """What is left, against what should be."""
        numbers = [row["iter"] for row in self._toy.iterations()]
        doubled = len(numbers) - len(set(numbers))
        missing = len(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
        time.sleep(30)
        orphans = sum(len(node.processes("forkserver")) for node in self._cluster.nodes.values())
        note = f"{kills} kills of driver, actor, node and trial in turn at random"
        found = {
            "rows lost": self.lost_rows,
            "iterations doubled": doubled,
            "iterations missing below the last": missing,
            "fork servers left 30 s after the end": orphans,
        }
        return [
            Figure(name, value, "", goal="0", met=value == 0, note=note)
            for name, value in found.items()
        ] + [Figure("iterations done meanwhile", len(numbers), "", note=note)]

    # --- victims --------------------------------------------------------------------------------

    def _kill_driver(self, chance: random.Random) -> None:
        if self._loop is not None:
            self._loop.kill()
            self._loop.communicate()

    def _kill_actor(self, chance: random.Random) -> None:
        _kill_one([actor for node in self._workers() for actor in node.actors()], chance)

    def _kill_trial(self, chance: random.Random) -> None:
        servers = [p for node in self._workers() for p in node.processes("forkserver")]
        _kill_one([child for server in servers for child in _children(server)], chance)

    def _kill_node(self, chance: random.Random) -> None:
        node = chance.choice(self._workers())
        node.lose()
        self._cluster.add(node.name)

    def _workers(self) -> list[LocalNode]:
        return [node for name, node in self._cluster.nodes.items() if name != "head"]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _kill_one(processes: list[psutil.Process], chance: random.Random) -> None:
    if processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(processes).kill()
