"""Test a lane on a node, and what it does with files there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from autoresearch.errors import SettingsError
from tests.support import hostile
from tests.support.places import ROOT
from tests.support.ray_facts import node_facts
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_for_all_gone
from trainer.executors.base import LaneLost, TrialAborted
from trainer.executors.lanes import Lanes
from trainer.executors.ray import cluster
from trainer.executors.ray import lane as module
from trainer.executors.ray.facts import Node, Seat
from trainer.executors.ray.lane import RayLane
from trainer.executors.ray.messages import LaneOrder, Machine
from trainer.executors.ray.node import NodeLane
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import Place, parse_result

SPEC = trial_spec()
POINT = '{{"step": {step}, "tokens": {step}, "loss": 5.5, "lr": 0.1, "grad_norm": 1.0, "s": 0.1}}'


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTORESEARCH_DATA_DIR", str(tmp_path))


def order(token: str = "a" * 16, lease_s: float = 60) -> LaneOrder:
    return LaneOrder(
        token=token,
        entry=hostile.ENTRY,
        lease_s=lease_s,
        allow_unsandboxed=not Layers.detect().confine,
    )


class Direct:
    """A remote lane that is called directly and records its calls."""

    def __init__(self, *_: object, **__: object) -> None:
        self._lane = NodeLane()
        self.asked: list[str] = []

    def ask(
        self,
        method: str,
        *arguments: Any,
        meanwhile: Callable[[], None] = lambda: None,
        **_: object,
    ) -> Any:
        self.asked.append(method)
        if method == "open":
            arguments = (replace(arguments[0], token="a" * 16),)
        meanwhile()
        return getattr(self._lane, method)(*arguments)

    def end(self) -> None:
        self._lane.close()


def open_lane(monkeypatch: pytest.MonkeyPatch, remote: Direct) -> RayLane:
    machine = Machine("id", "here", 1, 0)
    monkeypatch.setattr(module, "machines", lambda: [machine])
    monkeypatch.setattr(module, "Remote", lambda *_, **__: remote)
    return RayLane(Seat("here", machine, "cpu0", 1, 0, 0, None), order(), "a processor")


@pytest.mark.parametrize("is_large", [False, True])
def test_what_a_trial_left_on_its_node_is_here_then_and_there_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    text = trial_ok(SPEC).model_dump_json()
    lines = [POINT.format(step=step) for step in range(1, 31)]
    printed = "x" * 300
    if is_large:  # the curve spans several answers
        monkeypatch.setattr("trainer.executors.ray.node.PIECE_BYTES", 500)
    remote = Direct()
    lane = open_lane(monkeypatch, remote)
    trial_dir, there = tmp_path / "trials" / "t1", lane.home / "t1"
    hostile.arm(there, hostile.leave_everything, lines=lines, printed=printed, text=text)
    with Lanes([lane]) as executor:
        finished = executor.submit(SPEC, trial_dir).result()
        assert finished.result == trial_ok(SPEC)
        assert finished.place == Place(lane="here:cpu0", node="here", device="a processor")
        assert parse_result((trial_dir / "result.json").read_bytes()) == trial_ok(SPEC)
        assert (trial_dir / "curve.jsonl").read_text().splitlines() == lines
        assert (trial_dir / "trainer.log").read_text() == printed + "\n"
        assert not there.exists()
        assert set(remote.asked) == {"open", "start", "watch"}
        assert (remote.asked.count("watch") > len("".join(lines)) // 500) == is_large
    assert not lane.home.exists()


def test_a_cancel_waits_for_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Direct()
    lane = open_lane(monkeypatch, remote)
    hostile.arm(lane.home / "t1", hostile.nap, s=600)
    with Lanes([lane]) as executor:
        job = executor.submit(SPEC, tmp_path / "t1")
        while "watch" not in remote.asked:
            job.wait(0.01)
        job.cancel()
        with pytest.raises(TrialAborted):
            job.result()
        assert "cancel" in remote.asked


def test_a_lane_returns_to_its_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray gives a node another id with every start, and two machines may share a name."""
    alive: list[Machine] = []
    opened_on: list[str] = []

    def remote(node_id: str, **_: object) -> Mock:
        opened_on.append(node_id)
        return Mock(ask=lambda *_, **__: ("", Path()))

    monkeypatch.setattr(module, "machines", lambda: alive)
    monkeypatch.setattr(module, "Remote", remote)
    seat = Seat("spark", Machine("c", "spark", 2, 0, "1"), "cpu0", 1, 0, 0, None)
    other = Machine("b", "spark", 2, 0, "2")
    alive[:] = [other]
    with pytest.raises(LaneLost):
        RayLane(seat, order(), "")
    alive[:] = [other, Machine("new", "spark", 2, 0, "1")]
    RayLane(seat, order(), "")
    assert opened_on == ["new"]


def test_machines_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [Machine(one, name, 2, 0) for one, name in zip("abc", "xxy", strict=True)]
    monkeypatch.setattr(cluster, "connect", lambda *_: None)
    monkeypatch.setattr(cluster, "machines", lambda: machines)
    monkeypatch.setattr(cluster, "RayLane", lambda seat, _order, kind: (seat.name, kind))
    found = cluster.RayCluster()
    named = found.machines()
    assert {name: machine.id for name, machine in named.items()} == {"x": "a", "x.2": "b", "y": "c"}
    nodes = [
        Node(name, machine, node_facts(cpu="another" if name == "y" else "a processor"))
        for name, machine in named.items()
    ]
    monkeypatch.setattr(found, "probe", lambda *_: (nodes, {}))
    lanes, refused = found.open_lanes()
    assert lanes == [("x:cpu0", "a processor"), ("x.2:cpu0", "a processor")]
    assert set(refused) == {"y"}
    assert found.open_lanes(kind="another")[0] == [("y:cpu0", "another")]
    with pytest.raises(SettingsError):
        found.open_lanes(kind="a third")


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("precious")
    lane = NodeLane()
    _, home = lane.open(order())
    hostile.arm(home / "t1", hostile.replace_log_by_symlink, path=str(secret))
    lane.start("t1", SPEC, {}, False)
    while (watched := lane.watch(0, 5.0)).end is None:
        pass
    assert b"precious" not in watched.curve + watched.log
    lane.close()


def test_what_dead_lanes_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    dead, living = tmp_path / "node" / "lanes" / ("d" * 16), NodeLane()
    dead.mkdir(parents=True)
    (dead / ".open").touch()
    _, home = living.open(order("b" * 16))
    assert not dead.exists()
    second = NodeLane()
    second.open(order())
    assert home.is_dir()
    second.close()
    living.close()


ALONE = """
import select, sys, time
from tests.support import hostile
from tests.support.processes import noted
from tests.support.ray_facts import node_facts
from tests.support.trials import trial_spec
from tests.trainer.executors.ray.test_lane import order
from trainer.executors.ray.node import NodeLane
lane = NodeLane()
_, home = lane.open(order(lease_s=float(sys.argv[1])))
hostile.arm(home / "t1", hostile.spread, stay=True, deaf=True)
lane.start("t1", trial_spec(), {}, False)
while len(noted(home / "t1")) < 4:
    lane.watch(0, 0.1)
print(*noted(home / "t1"), flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    lane.watch(0, 0.1)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_nothing_is_left_where_nobody_asks_or_the_lane_is_killed(is_killed: bool) -> None:
    """The trial ignores SIGTERM and has three descendants in sessions of their own."""
    lease_s = "600" if is_killed else "2"
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, lease_s],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    trial = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(trial) == 4
    if is_killed:
        process.kill()
    process.stdin.close()  # then it asks no more
    wait_for_all_gone(trial)
    assert process.wait() == (-9 if is_killed else 1)
    process.stdout.close()


def test_facts_say_what_this_machine_is() -> None:
    facts = NodeLane().facts(None)
    assert facts.code.startswith("0.")
    assert facts.disk == ""
    assert facts.cores >= 1
