"""A cluster's machines keep their names, and only so many lanes open on one at once."""

from __future__ import annotations

import threading
from collections import Counter
from unittest.mock import Mock

import pytest

from autoresearch.errors import SettingsError
from tests.support.ray_facts import node_facts
from trainer.executors.ray import cluster as module
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.facts import Node, Seat
from trainer.executors.ray.lane import RayLane
from trainer.executors.ray.remote_trial import OpenLane
from trainer.executors.ray.values import Machine
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
        monkeypatch.setattr(module, "connect", lambda *_: None)
        monkeypatch.setattr(module, "machines", lambda: self.alive)
        self.cluster = RayCluster()

    def now(self, **names: str) -> dict[str, str]:
        """Set the machines that are alive, as id=name; return their ids by the names they are
        given."""
        self.alive = [Machine(one, name, 2, 0, 0) for one, name in names.items()]
        return {name: machine.id for name, machine in self.cluster.machines().items()}

    def used(self, name: str) -> None:
        """Open a lane on the machine with that name."""
        self.cluster._keep_name(name, self.cluster.machines()[name])


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    return Named(monkeypatch)


def test_machines_of_one_name_are_told_apart(named: Named) -> None:
    assert named.now(a="spark", b="spark", c="desk") == {"desk": "c", "spark": "a", "spark.2": "b"}


def test_a_machine_that_comes_back_has_its_name_once_its_former_self_is_known_to_be_gone(
    named: Named,
) -> None:
    """Ray can restart there before the cluster has noticed that it stopped."""
    named.now(old="spark")
    named.used("spark")
    assert named.now(new="spark", old="spark") == {"spark": "old", "spark.2": "new"}
    assert named.now(new="spark") == {"spark": "new"}


def test_a_machine_in_use_keeps_its_name_whoever_comes_and_goes(named: Named) -> None:
    named.now(a="spark", b="spark")
    named.used("spark")
    named.used("spark.2")
    assert named.now(b="spark") == {"spark.2": "b"}
    assert named.now(c="spark", b="spark") == {"spark": "c", "spark.2": "b"}


def test_a_name_given_anew_is_nobody_elses(named: Named) -> None:
    """A machine that was cut off and counted as gone may answer again."""
    named.now(old="spark")
    named.used("spark")
    named.now(new="spark")
    named.used("spark")
    assert named.now(old="spark", new="spark") == {"spark": "new", "spark.2": "old"}
