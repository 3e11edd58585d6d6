"""Rows of several lanes overlap, and no second counts twice."""

import random

import pytest

from tests.support.configs import config
from tests.support.rows import iteration_row, ok, trial
from trainer.schema import Place
from trajectory.rows import BaselineRow, IterationRow
from trajectory.spending import BusyTime, LaneUse


def row(number: int, ended_s: int, wall_s: float, lanes: int | None) -> IterationRow:
    made = iteration_row(number, config(lr=1e-3 * number), ())
    at = f"2026-01-01T00:00:{ended_s:02d}.000+00:00"
    return made.model_copy(update={"at": at, "wall_s": wall_s, "lanes": lanes})


def run(number: int, ended_s: int, wall_s: float, place: Place | None) -> BaselineRow:
    of = config()
    record = trial(number, of, number, ok(4.0), "baseline")
    return BaselineRow(
        at=f"2026-01-01T00:00:{ended_s:02d}.000+00:00",
        config=of,
        config_hash=of.config_hash,
        trial=record.model_copy(update={"wall_s": wall_s, "place": place}),
    )


def test_one_lane_counts_what_its_rows_say_whatever_the_clock() -> None:
    worked = BusyTime()
    assert [worked.added_s(row(n, 0, 3.5, None)) for n in (1, 2, 3)] == [3.5] * 3


def test_rows_cover_what_they_cover_together() -> None:
    rng = random.Random(1)
    for _ in range(50):
        worked, seconds, told = BusyTime(), set[int](), 0.0
        for number, ended in enumerate(sorted(rng.choices(range(1, 60), k=19)), start=1):
            wall = rng.randrange(0, ended + 1)
            told += worked.added_s(row(number, ended, wall, 2))
            seconds |= set(range(ended - wall, ended))
            assert told == pytest.approx(len(seconds))


def test_a_clock_that_is_set_back_hides_no_work() -> None:
    worked = BusyTime()
    ends = [20, 30, 40, 15, 25, 35]
    assert [worked.added_s(row(n, end, 10, 2)) for n, end in enumerate(ends, start=1)] == [10] * 6


def test_runs_taken_up_after_a_kill_overlap_though_they_say_no_place() -> None:
    worked = BusyTime()
    baselines = [run(number, 30, 10, None) for number in range(4)]
    placed = run(5, 42, 10, Place(lane="1"))
    late = run(6, 42, 11, None)
    told = [worked.added_s(one) for one in [*baselines, placed, late]]
    assert sum(told) == pytest.approx(21), told
    alone = BusyTime()
    assert sum(map(alone.added_s, baselines)) == 40, "no row says that they ran side by side"


def busy(number: int, at: str, lane: str, wall_s: float) -> IterationRow:
    """Return a row of two lanes, on one of which a trial ran."""
    one = row(number, 0, 10, 2)
    record = trial(number, one.config, 0, ok(4.0)).model_copy(
        update={"wall_s": wall_s, "place": Place(lane=lane)}
    )
    return one.model_copy(update={"at": f"2026-01-01T{at}.000+00:00", "trials": (record,)})


def test_the_use_of_lanes_is_trials_over_their_time() -> None:
    use = LaneUse()
    assert use.share is use.share_of_last_hour is None
    use.add(busy(1, "00:00:10", "0", 8.0), 10)
    use.add(busy(2, "00:00:20", "1", 4.0), 10)
    use.add(row(3, 50, 30, None), 30)  # what ran alone says nothing of lanes
    assert use.lanes == 2
    assert dict(use.of_lanes()) == pytest.approx({"0": 8 / 20, "1": 4 / 20})
    assert use.share_of_last_hour == use.share == pytest.approx(12 / 40)
    use.add(busy(4, "01:02:00", "0", 20.0), 10)
    assert use.share_of_last_hour == pytest.approx(1.0)
    assert use.share == pytest.approx(32 / 60)
