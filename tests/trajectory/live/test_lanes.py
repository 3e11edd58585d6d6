"""The campaign reports where each trial runs, and the page shows it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from agent.workbench.lane_board import LanesFileWriter, remove_lanes_file
from tests.support.configs import config
from tests.support.present import known
from tests.support.rows import trial
from tests.support.trials import trial_ok, trial_spec
from tests.trajectory.live.server import simulated, write_campaign
from tests.trajectory.live.test_follower import begin_trial, followed
from trainer.spec import Place
from trajectory.live.trial import LanesNow, LaneView, read_lanes
from trajectory.rows import IterationRow, Row


def of_lanes(rows: list[Row], lanes: int) -> list[Row]:
    """Return the same rows, as a campaign with several lanes would write them."""
    found: list[Row] = []
    for row in rows:
        if isinstance(row, IterationRow):
            trials = tuple(
                one.model_copy(update={"place": Place(lane=str(n % lanes))})
                for n, one in enumerate(row.trials)
            )
            row = row.model_copy(update={"lanes": lanes, "trials": trials})  # noqa: PLW2901
        found.append(row)
    return found


def at_work(directory: Path) -> LanesFileWriter:
    """Write a campaign with two trials on its lanes, one waiting trial and a free lane."""
    write_campaign(directory, of_lanes(simulated(25), 3))
    teller = LanesFileWriter(directory, 3)
    for number, (role, lane) in enumerate([("candidate", "0"), ("reference", "1")]):
        begin_trial(directory, f"t00020{number}", 20 * (number + 1))
        spec = trial_spec(trial_id=f"t00020{number}", config=config(), seed=4)
        teller.trial_started(spec, role)  # type: ignore[arg-type]
        teller.trial_placed(spec.trial_id, Place(lane=lane))
    ended = trial_spec(trial_id="t000190")
    teller.trial_started(ended, "candidate")
    teller.trial_placed("t000190", Place(lane="2"))
    record = trial(190, ended.config, 1, trial_ok(ended), "candidate")
    teller.trial_ended(record)
    teller.trial_started(trial_spec(trial_id="t000202"), "candidate")
    (directory / "in_flight").mkdir()
    said = {"iter": 26, "config": config().model_dump(mode="json"), "until": 40}
    (directory / "in_flight" / "000026.json").write_text(json.dumps(said), "utf-8")
    return teller


def test_each_lane_says_its_trial_and_how_far_that_is(tmp_path: Path) -> None:
    at_work(tmp_path / "c")
    follower = followed(tmp_path / "c")
    seen = known(follower.lanes())
    assert seen.waiting == 1
    assert seen.lanes == (
        LaneView(
            lane="0", trial_id="t000200", role="candidate", iter=26, seed=4, step=20, steps=60
        ),
        LaneView(lane="1", trial_id="t000201", role="reference", seed=4, step=40, steps=60),
        LaneView(lane="2"),
    )


def test_what_a_kill_left_is_not_shown_as_running(tmp_path: Path) -> None:
    at_work(tmp_path / "c")
    for path in (tmp_path / "c", *(tmp_path / "c").rglob("*")):
        os.utime(path, (time.time() - 3600,) * 2)
    follower = followed(tmp_path / "c")
    assert follower.lanes() is None
    remove_lanes_file(tmp_path / "c")
    assert read_lanes(tmp_path / "c") is None


@pytest.mark.parametrize("said", ["{", "[]", '{"lanes": 0, "said": [], "waiting": 0}', ""])
def test_what_is_illegible_is_passed_over(said: str, tmp_path: Path) -> None:
    write_campaign(tmp_path / "c", simulated(3))
    (tmp_path / "c" / "lanes.json").write_text(said)
    follower = followed(tmp_path / "c")
    assert follower.lanes() is None


def test_where_it_cannot_be_said_the_trials_go_on(tmp_path: Path) -> None:
    (tmp_path / "lanes.json").mkdir()
    teller = LanesFileWriter(tmp_path, 2)
    teller.trial_started(trial_spec(trial_id="t000001"), "candidate")
    teller.trial_placed("t000001", Place(lane="0"))
    assert read_lanes(tmp_path) is None


def test_a_lane_shows_what_runs_on_it_after_a_trial_that_was_given_up(tmp_path: Path) -> None:
    teller = LanesFileWriter(tmp_path, 2)
    for name in ("t000001", "t000002"):
        teller.trial_started(trial_spec(trial_id=name), "candidate")
        teller.trial_placed(name, Place(lane="0"))
    now = read_lanes(tmp_path)
    assert isinstance(now, LanesNow)
    assert [one.trial_id for one in now.said] == ["t000002"]
    assert now.waiting == 0
