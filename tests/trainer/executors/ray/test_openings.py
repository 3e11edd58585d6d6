"""A cluster's machines keep their names, and only so many lanes open on one at once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest

from autoresearch.errors import SettingsError
from tests.support.ray_facts import node_facts
from trainer.executors.base import LaneLost
from trainer.executors.ray import cluster as module
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.facts import Node, Seat
from trainer.executors.ray.lane import OpenLane, RayLane
from trainer.executors.ray.values import LaneOrder, Machine
from trainer.spec import Place


class Slow(RayCluster):
    """Cluster of two nodes with two cores and room for eight lanes each, whose openings take a
    while."""

    def __init__(self, together: int = 1, **cpus: str) -> None:
        """Take processors that differ from the default.

        :param together: openings on a node that wait for each other.
        :param cpus: the processors of nodes, by name.
        """
        super().__init__()
        self._meet = {name: threading.Barrier(together) for name in ("a", "b", *cpus)}
        self._cpus = {"a": "a processor", "b": "a processor", **cpus}
        self.opening = Counter[str]()
        self.most = Counter[str]()
        self.opened: list[str] = []
        self._counting = threading.Lock()

    def probe(self, *_asked: object) -> tuple[list[Node], dict[str, str]]:
        machines = [Machine(name, name, 8, 0, 0) for name in self._cpus]
        facts = [node_facts(cores=2, cpu=cpu) for cpu in self._cpus.values()]
        return [Node(one.name, one, of) for one, of in zip(machines, facts, strict=True)], {}

    def _open(self, seat: Seat, *_order: object) -> OpenLane:
        with self._counting:
            self.opening[seat.node] += 1
            self.most[seat.node] = max(self.most[seat.node], self.opening[seat.node])
        self._meet[seat.node].wait()
        with self._counting:
            self.opening[seat.node] -= 1
            self.opened.append(seat.name)
        return OpenLane(Mock(), "", Place(lane=seat.name))


def names(lanes: list[RayLane]) -> list[str]:
    return [lane.place.lane for lane in lanes]


@pytest.fixture(autouse=True)
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "connect", lambda *_: None)


def test_no_more_at_once_than_a_node_has_cores() -> None:
    """Each opening starts a Python there, and sixteen at once on two cores would not answer in
    time."""
    cluster = Slow(together=2)
    lanes, refused = cluster.open_lanes(16)
    assert refused == {}
    assert len(set(names(lanes))) == len(cluster.opened) == 16
    assert cluster.most == {"a": 2, "b": 2}


def test_nodes_of_another_kind_are_left_out() -> None:
    lanes, refused = Slow(c="another").open_lanes()
    assert names(lanes) == ["a:cpu0", "b:cpu0"]
    assert set(refused) == {"c"}
    lanes, refused = Slow(c="another").open_lanes(kind="another")
    assert names(lanes) == ["c:cpu0"]
    assert set(refused) == {"a", "b"}
    with pytest.raises(SettingsError):
        Slow().open_lanes(kind="another")


class Named:
    """Cluster whose machines a test determines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alive: list[Machine] = []
        self.opened_on: list[str] = []
        monkeypatch.setattr(module, "machines", lambda: self.alive)
        monkeypatch.setattr(module, "Remote", self._remote)
        self.cluster = RayCluster()

    def _remote(self, node_id: str, **_: object) -> Mock:
        self.opened_on.append(node_id)
        return Mock(ask=lambda *_, **__: ("", Path()))

    def now(self, *machines: str) -> dict[str, str]:
        """Set the machines that are alive, as id=name@address; return their ids by the names they
        are given."""
        self.alive = [
            Machine(one, name, 2, 0, 0, address)
            for machine in machines
            for one, name, address in [machine.replace("@", "=").split("=")]
        ]
        return {name: machine.id for name, machine in self.cluster.machines().items()}

    def open(self, name: str, machine: str) -> None:
        """Open a lane that was first opened on a machine of that name and id=name@address."""
        one, own_name, address = machine.replace("@", "=").split("=")
        seat = Seat(name, Machine(one, own_name, 2, 0, 0, address), "cpu0", 1, 0, 0, None)
        self.cluster._open(seat, LaneOrder("", "", 1), "a processor")


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    return Named(monkeypatch)


def test_machines_of_one_name_are_told_apart(named: Named) -> None:
    found = named.now("c=desk@3", "a=spark@1", "b=spark@2")
    assert found == {"desk": "c", "spark": "a", "spark.2": "b"}


def test_a_lane_returns_to_its_own_machine_whoever_comes_and_goes(named: Named) -> None:
    named.now("c=spark@1", "b=spark@2")
    named.open("spark.2", "b=spark@2")
    named.now("b=spark@2")
    with pytest.raises(LaneLost):
        named.open("spark", "c=spark@1")
    named.now("b=spark@2", "new=spark@1")
    named.open("spark", "c=spark@1")
    assert named.opened_on == ["b", "new"]
