"""Check that a campaign ends at the first goal it reaches, counting earlier sessions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from agent.search.stopping import DEFAULT_ITERATIONS, Goal, Work
from autoresearch.errors import SettingsError
from tests.support.configs import config
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial
from trajectory.rows import Row


def journal() -> Iterator[Row]:
    """Yield two baseline runs and one iteration of two trials."""
    yield campaign_row()
    yield baseline_row(1, 4.2, 0)
    yield baseline_row(2, 4.3, 1)
    other = config(lr=2e-3)
    yield iteration_row(1, other, tuple(trial(n, other, n, ok(4.1)) for n in (3, 4)))


def test_work_is_counted_from_the_journal() -> None:
    work = Work.of(journal())
    wall_s = next(row.wall_s for row in journal() if row.kind == "iteration")
    assert (work.iterations, work.trials) == (1, 4)
    assert work.hours == pytest.approx((2 * 3.65 + wall_s) / 3600)


def test_a_line_that_was_doubled_is_no_work() -> None:
    rows = list(journal())
    assert Work.of([*rows, rows[-1]]) == Work.of(rows)


@pytest.mark.parametrize(
    ("goal", "is_reached"),
    [
        (Goal(iterations=1), True),
        (Goal(iterations=9, trials=4), True),
        (Goal(hours=0.001), True),
        (Goal(iterations=2, trials=5, hours=1), False),
        (Goal(), False),
    ],
)
def test_the_first_goal_ends_the_campaign(goal: Goal, is_reached: bool) -> None:
    assert (goal.reached(Work.of(journal())) is not None) == is_reached


@pytest.mark.parametrize("hours", [math.nan, math.inf])
def test_hours_that_never_end_are_refused(hours: float) -> None:
    with pytest.raises(SettingsError):
        Goal.asked(None, None, hours)


def test_the_baseline_alone_is_a_goal() -> None:
    assert Goal(iterations=0).reached(Work()) is not None


def test_a_hundred_iterations_where_nothing_is_asked_for() -> None:
    assert Goal.asked(None, None, None) == Goal(iterations=DEFAULT_ITERATIONS)
    assert Goal.asked(None, 300, None) == Goal(trials=300)
