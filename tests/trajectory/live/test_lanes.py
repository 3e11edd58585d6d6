"""A trial's directory names its lane, and the page shows what runs on each."""

import os
import time
from pathlib import Path

from autoresearch.layout import LANE_FILE
from tests.trajectory.live.server import simulated, write_campaign
from tests.trajectory.live.test_follower import begin_trial, followed


def begin(directory: Path, trial_id: str, lane: str, points: int) -> Path:
    trial = begin_trial(directory, trial_id, points)
    (trial / LANE_FILE).write_text(lane, "utf-8")
    return trial


def test_each_lane_says_its_newest_trial_and_how_far_that_is(tmp_path: Path) -> None:
    write_campaign(tmp_path, simulated(25))
    begin(tmp_path, "t000199", "1", 50)  # given up, so it leaves no result
    begin(tmp_path, "t000200", "10", 20)
    begin(tmp_path, "t000201", "1", 40)
    begin(tmp_path, "t000202", "2", 0)
    (begin(tmp_path, "t000203", "3", 60) / "result.json").write_text("{}")
    begin_trial(tmp_path, "t000204", 5)  # of a session with one lane
    seen = followed(tmp_path).lanes()
    assert [(one.lane, one.trial_id, one.seed, one.steps) for one in seen] == [
        ("1", "t000201", 4, 60),
        ("2", "t000202", 4, 60),
        ("10", "t000200", 4, 60),
    ]
    assert [[point.step for point in one.points] for one in seen] == [[40], [], [20]]


def test_what_a_kill_left_is_not_shown_as_running(tmp_path: Path) -> None:
    write_campaign(tmp_path, simulated(25))
    begin(tmp_path, "t000200", "0", 20)
    assert followed(tmp_path).lanes()
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.utime(path, (time.time() - 3600,) * 2)
    assert followed(tmp_path).lanes() == ()


def test_a_lane_that_a_trial_made_up_is_short_text_or_none(tmp_path: Path) -> None:
    write_campaign(tmp_path, simulated(3))
    (begin(tmp_path, "t000200", "0", 1) / LANE_FILE).write_bytes(b"\xff" * 5000)
    followed_link = begin_trial(tmp_path, "t000201", 1) / LANE_FILE
    followed_link.symlink_to(tmp_path / "trajectory.jsonl")
    os.mkfifo(begin_trial(tmp_path, "t000202", 1) / LANE_FILE)
    (begin_trial(tmp_path, "t000203", 1) / LANE_FILE).mkdir()
    (seen,) = followed(tmp_path).lanes()
    assert seen.lane == "\N{REPLACEMENT CHARACTER}" * 100
