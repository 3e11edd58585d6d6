"""Test a lane on a node, and what it does with files there."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import hostile
from tests.support.places import ROOT
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_for_all_gone
from trainer.executors.base import TrialAborted
from trainer.executors.local import LocalJob
from trainer.executors.ray.lane import OpenLane, RayLane
from trainer.executors.ray.node import NodeLane
from trainer.executors.ray.values import LaneOrder, Watched
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.outcome import aborted
from trainer.spec import Place, parse_result

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
        fork_server=False,
    )


class Direct:
    """Lane that is called directly and records its calls."""

    def __init__(self) -> None:
        self._lane = NodeLane()
        _, self.home = self._lane.open(order())
        self.asked: list[str] = []

    def ask(self, method: str, *arguments: Any, **_: object) -> Any:
        self.asked.append(method)
        return getattr(self._lane, method)(*arguments)

    def end(self) -> None:
        self._lane.close()


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
    trial_dir = tmp_path / "trials" / "t1"
    hostile.arm(
        remote.home / "t1", hostile.leave_everything, lines=lines, printed=printed, text=text
    )
    first = OpenLane(remote, "", Place(lane="here"))
    with RayLane(first, lambda: first) as lane:
        job = lane.submit(SPEC, trial_dir)
        assert job.result().result == trial_ok(SPEC)
        assert parse_result((trial_dir / "result.json").read_bytes()) == trial_ok(SPEC)
        assert (trial_dir / "curve.jsonl").read_text().splitlines() == lines
        assert (trial_dir / "trainer.log").read_text() == printed + "\n"
        assert not (remote.home / "t1").exists()
        assert set(remote.asked) == {"start", "watch"}
        assert (remote.asked.count("watch") > len("".join(lines)) // 500) == is_large
    assert not remote.home.exists()


class Cancelled:
    """Lane whose trial is cancelled while a request waits for its end."""

    def __init__(self) -> None:
        self.job: LocalJob | None = None
        self.asked: list[str] = []

    def ask(
        self, method: str, *_: object, meanwhile: Callable[[], None] = lambda: None, within_s: float
    ) -> Watched | None:
        self.asked.append(method)
        if method != "watch":
            return None
        while self.job is None:
            time.sleep(0.01)
        self.job.cancelled.set()
        meanwhile()
        return Watched(b"", aborted("t1"))

    def end(self) -> None:
        pass


def test_a_cancel_does_not_wait_for_the_request_that_waits_for_the_end(tmp_path: Path) -> None:
    remote = Cancelled()
    first = OpenLane(remote, "", Place(lane="here"))
    with RayLane(first, lambda: first) as lane:
        remote.job = lane.submit(SPEC, tmp_path / "t1")
        with pytest.raises(TrialAborted):
            remote.job.result()
        assert remote.asked == ["start", "watch", "cancel"]


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
    before = time.time()
    facts = NodeLane().facts(None)
    assert facts.code.startswith("0.")
    assert facts.disk == ""
    assert facts.cores >= 1
    assert before <= facts.clock_s <= time.time()
