"""Rows of several lanes overlap, and no second counts twice."""

import random

import pytest

from tests.support.configs import config
from tests.support.rows import iteration_row, ok, trial
from trainer.spec import Place
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


def test_the_use_of_lanes_is_trials_over_their_time() -> None:
    use, worked = LaneUse(), BusyTime()
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


def test_the_use_of_each_lane_and_of_the_last_hour() -> None:
    use = LaneUse()
    for number, (ended, lane, wall) in enumerate(((10, "0", 8.0), (20, "1", 4.0)), start=1):
        one = row(number, ended, 10, 2)
        record = trial(number, one.config, 0, ok(4.0), "candidate").model_copy(
            update={"wall_s": wall, "place": Place(lane=lane)}
        )
        use.add(one.model_copy(update={"trials": (record,)}), 10)
    assert dict(use.of_lanes()) == pytest.approx({"0": 8 / 20, "1": 4 / 20})
    assert use.share_of_last_hour == use.share == pytest.approx(12 / 40)
    late = row(3, 20, 10, 2).model_copy(update={"at": "2026-01-01T01:02:00.000+00:00"})
    busy = trial(9, late.config, 0, ok(4.0), "candidate").model_copy(
        update={"wall_s": 20.0, "place": Place(lane="0")}
    )
    use.add(late.model_copy(update={"trials": (busy,)}), 10)
    assert use.share_of_last_hour == pytest.approx(1.0)
    assert use.share == pytest.approx(32 / 60)
