"""Test a lane on a node, and what it does with files there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support import hostile
from tests.support.places import ROOT
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_for_all_gone, wait_until
from trainer.executors.base import TrialAborted
from trainer.executors.local import LocalJob
from trainer.executors.ray.lane import RayLane
from trainer.executors.ray.node import NodeLane
from trainer.executors.ray.remote_trial import OpenLane
from trainer.executors.ray.values import LaneOrder, Opened, Progress, TrialOrder, apart, with_bytes
from trainer.isolation.kernel.sandbox import Layers
from trainer.spec import Place, parse_result

SPEC = trial_spec()
POINT = '{{"step": {step}, "tokens": {step}, "loss": 5.5, "lr": 0.1, "grad_norm": 1.0, "s": 0.1}}'


class Direct:
    """Lane that is called directly and records its calls."""

    def __init__(self, data_dir: Path) -> None:
        told = LaneOrder(
            token="a" * 16,
            entry=hostile.ENTRY,
            allow_unsandboxed=not Layers.detect().confine,
            fork_server=False,
            data_dir=str(data_dir),
            lease_s=60,
        )
        self._lane = NodeLane(told.model_dump_json())
        self.opened = Opened.model_validate_json(self._lane.open())
        self.asked: list[str] = []

    def ask(self, method: str, *arguments: object, **_: object) -> bytes:
        self.asked.append(method)
        answer: bytes = getattr(self._lane, method)(*arguments)
        return answer

    def end(self) -> None:
        self._lane.close()


@pytest.mark.parametrize("is_large", [False, True])
def test_what_a_trial_left_on_its_node_is_here_then_and_there_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    text = trial_ok(SPEC).model_dump_json()
    if is_large:  # both the curve and the log span several answers
        for module in ("node", "remote_trial"):
            monkeypatch.setattr(f"trainer.executors.ray.{module}.PIECE_BYTES", 500)
    lines = [POINT.format(step=step) for step in range(1, 31)]
    printed = "x" * 3000
    remote = Direct(tmp_path / "node")
    home, trial_dir = Path(remote.opened.home), tmp_path / "trials" / "t1"
    hostile.arm(home / "t1", hostile.leave_everything, lines=lines, printed=printed, text=text)
    first = OpenLane(remote, "", Place(lane="here"))
    with RayLane(first, lambda: first) as lane:
        job = lane.submit(SPEC, trial_dir)
        assert job.result().result == trial_ok(SPEC)
        assert parse_result((trial_dir / "result.json").read_bytes()) == trial_ok(SPEC)
        assert (trial_dir / "curve.jsonl").read_text().splitlines() == lines
        assert (trial_dir / "trainer.log").read_text() == printed + "\n"
        assert not (home / "t1").exists()
        asked = set(remote.asked)
    assert asked == {"start", "watch"} | ({"more", "hand_over"} if is_large else set())
    assert not home.exists()


class Cancelled:
    """Lane whose trial is cancelled while a request waits for its end."""

    def __init__(self) -> None:
        self.job: LocalJob | None = None
        self.asked: list[str] = []

    def ask(
        self, method: str, *_: object, meanwhile: Callable[[], None] = lambda: None, within_s: float
    ) -> bytes:
        self.asked.append(method)
        if method != "watch":
            return Progress().model_dump_json().encode()
        while self.job is None:
            time.sleep(0.01)
        self.job.cancelled.set()
        meanwhile()
        meanwhile()
        return with_bytes(Progress(ended=True, aborted=True, lengths=(0, 0, 0)), b"")

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


ORDER = TrialOrder(spec=SPEC).model_dump_json()


def order(directory: Path, token: str = "a" * 16, lease_s: float = 60) -> str:
    return LaneOrder(
        token=token,
        entry=hostile.ENTRY,
        allow_unsandboxed=not Layers.detect().confine,
        fork_server=False,
        data_dir=str(directory),
        lease_s=lease_s,
    ).model_dump_json()


def ended(lane: NodeLane) -> tuple[Progress, bytes]:
    """Watch a trial until it ends; return its end and the data after that."""
    while True:
        head, behind = apart(lane.watch(0, 5.0))
        progress = Progress.model_validate_json(head)
        if progress.ended:
            return progress, behind


def test_a_link_in_place_of_a_result_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("precious")
    lane = NodeLane(order(tmp_path / "node"))
    home = Path(Opened.model_validate_json(lane.open()).home)
    hostile.arm(home / "t1", hostile.leave_symlinked_result, path=str(secret))
    lane.start("t1", ORDER)
    _, behind = ended(lane)
    assert b"precious" not in behind + lane.hand_over()
    lane.close()


def test_a_trial_s_name_leads_nowhere_else(tmp_path: Path) -> None:
    lane = NodeLane(order(tmp_path / "node"))
    home = Path(Opened.model_validate_json(lane.open()).home)
    hostile.arm(home / "out", hostile.leave_result, text="of the trial in the lane's home")
    lane.start("../../../out", ORDER)
    _, behind = ended(lane)
    assert b"of the trial in the lane's home" in behind
    assert not (tmp_path / "out").exists()
    lane.close()


def test_what_dead_lanes_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    dead, living = tmp_path / "lanes" / ("d" * 16), NodeLane(order(tmp_path, "b" * 16))
    dead.mkdir(parents=True)
    (dead / ".open").touch()
    living.open()
    assert not dead.exists()
    second = NodeLane(order(tmp_path))
    second.open()
    assert (tmp_path / "lanes" / ("b" * 16)).is_dir()
    second.close()
    living.close()


ALONE = """
import sys, time
from pathlib import Path
from tests.support import hostile
from tests.support.trials import trial_spec
from trainer.executors.ray.node import NodeLane
from trainer.executors.ray.values import Opened, TrialOrder
lane = NodeLane(sys.argv[1])
home = Path(Opened.model_validate_json(lane.open()).home)
hostile.arm(home / "t1", hostile.spread, stay=True, deaf=True)
lane.start("t1", TrialOrder(spec=trial_spec()).model_dump_json())
print(home / "t1" / "pids", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_nothing_is_left_where_nobody_asks_or_the_lane_is_killed(
    tmp_path: Path, is_killed: bool
) -> None:
    """The trial ignores SIGTERM and has three descendants in sessions of their own."""
    told = order(tmp_path, lease_s=60 if is_killed else 2)
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, told], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = Path(process.stdout.readline().strip())
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 4)
    trial = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    if is_killed:
        process.kill()
    wait_for_all_gone(trial)
    assert process.wait() == (-9 if is_killed else 1)
    process.stdout.close()


def test_facts_are_json_that_says_what_this_machine_is(tmp_path: Path) -> None:
    before = time.time()
    facts = json.loads(NodeLane(order(tmp_path)).facts())
    assert facts["code"].startswith("0.")
    assert facts["disk"] == ""
    assert facts["cores"] >= 1
    assert before <= facts["clock_s"] <= time.time()
