"""A lane's own side, without Ray: its requests and answers, and its exit with its driver."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support import hostile
from tests.support.places import ROOT
from tests.support.trials import trial_spec
from tests.support.waiting import wait_for_all_gone, wait_until
from trainer.executors.ray.node import NodeLane
from trainer.executors.ray.values import LaneOrder, Opened, Progress, TrialOrder, apart
from trainer.isolation.kernel.sandbox import Layers

SPEC = trial_spec()
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
