"""Rows of several lanes overlap, and no second counts twice."""

from __future__ import annotations

import pytest

from tests.support.configs import config
from tests.support.rows import iteration_row, ok, trial
from trajectory.rows import IterationRow
from trajectory.worked import LaneUse, Worked


def row(number: int, ended_s: int, wall_s: float, lanes: int | None) -> IterationRow:
    made = iteration_row(number, config(lr=1e-3 * number), ())
    at = f"2026-01-01T00:00:{ended_s:02d}.000+00:00"
    return made.model_copy(update={"at": at, "wall_s": wall_s, "lanes": lanes})


def test_one_lane_counts_what_its_rows_say_whatever_the_clock() -> None:
    worked = Worked()
    assert [worked.added_s(row(n, 0, 3.5, None)) for n in (1, 2, 3)] == [3.5] * 3


def test_lanes_count_each_second_once() -> None:
    worked = Worked()
    rows = [row(1, 10, 10, 2), row(2, 12, 12, 2), row(3, 20, 10, 2), row(4, 40, 5, 2)]
    assert [worked.added_s(one) for one in rows] == [10, 2, 8, 5], "15 s nobody was at work"


def test_the_use_of_lanes_is_trials_over_their_time() -> None:
    use, worked = LaneUse(), Worked()
    assert use.share is None
    for number, (ended, wall) in enumerate(((10, 10.0), (12, 12.0)), start=1):
        one = row(number, ended, wall, 2)
        record = trial(number, one.config, 0, ok(4.0), "candidate").model_copy(
            update={"wall_s": 9.0}
        )
        one = one.model_copy(update={"trials": (record,)})
        use.add(one, worked.added_s(one))
    assert use.lanes == 2
    assert use.share == pytest.approx(18 / 24)
    use.add(row(3, 50, 30, None), 30)
    assert use.share == pytest.approx(18 / 24), "what ran alone says nothing of lanes"
