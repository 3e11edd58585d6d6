"""Start and end times of trials, as reported to trackers."""

from __future__ import annotations

from pathlib import Path

from agent.search.stopping import Goal
from tests.support.configs import config
from tests.support.nights import work
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial
from trainer.spec import Place
from trajectory.formats.tracked import seconds_of, tracked_trials
from trajectory.journal import read_rows
from trajectory.rows import Row


def test_trials_that_overlapped_are_told_so() -> None:
    reference, candidate = config(), config(lr=0.004)
    row = iteration_row(
        1,
        candidate,
        (
            trial(1, reference, 1, ok(4.0), "reference").model_copy(
                update={"place": Place(lane="0"), "at": "2026-01-05T22:00:05.000+00:00"}
            ),
            trial(2, candidate, 1, ok(4.0)).model_copy(
                update={"place": Place(lane="1"), "at": "2026-01-05T22:00:04.000+00:00"}
            ),
        ),
    )
    rows: list[Row] = [campaign_row(), baseline_row(3, 4.2, 7), row]
    *_, first, second = tracked_trials(rows)
    assert first.ended_s == seconds_of("2026-01-05T22:00:05+00:00")
    assert second.ended_s == first.ended_s - 1
    assert second.began_s == second.ended_s - second.trial.wall_s


def test_of_one_lane_the_row_says_it() -> None:
    trials = (trial(1, config(), 1, ok(4.0)), trial(2, config(), 2, ok(4.0)))
    row = iteration_row(1, config(), trials)
    first, second = tracked_trials([row])
    assert second.ended_s == seconds_of(row.at)
    assert first.ended_s == second.began_s


def test_a_trial_says_when_it_ended_where_there_are_several_lanes(tmp_path: Path) -> None:
    for lanes in (1, 3):
        work(tmp_path / str(lanes), Goal(iterations=3), lanes=lanes)
        rows = list(read_rows(tmp_path / str(lanes) / "campaign" / "trajectory.jsonl"))
        said = {one.trial.at is not None for one in tracked_trials(rows)}
        assert said == {lanes > 1}
        for one in tracked_trials(rows):
            assert one.ended_s > 1e9
