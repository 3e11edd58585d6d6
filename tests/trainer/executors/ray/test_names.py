"""Names of a cluster's machines while they leave and return."""

from __future__ import annotations

import pytest

from trainer.executors.ray import cluster as module
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.values import Machine


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
        self.alive = [Machine(one, name, "10.0.0.1", 2, 0, 0) for one, name in names.items()]
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
