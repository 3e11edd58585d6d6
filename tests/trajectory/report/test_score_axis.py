"""The report and the live page draw the same axis of scores."""

from pathlib import Path

import pytest

from tests.support.present import known
from tests.support.reports import findings, simulated
from trajectory.live.follower import Follower
from trajectory.report.canvas import score_limits
from trajectory.report.figures.progress import limits, points_of


@pytest.mark.parametrize(("iterations", "seed"), [(0, 5), (2, 10), (120, 5)])
def test_report_and_live_page_have_the_same_axis_and_the_same_intervals(
    tmp_path: Path, iterations: int, seed: int
) -> None:
    found = findings(tmp_path, simulated(iterations, seed))
    points, baseline = points_of(found), known(found.baseline)
    follower = Follower(tmp_path)
    while not follower.caught_up:
        follower.poll()
    status = follower.status()
    assert status.scale == pytest.approx(limits(points, found))
    assert status.baseline_lo == baseline.lo
    assert status.baseline_hi == baseline.hi
    measured = [point.score for point in points if point.score]
    briefs = [one for one in follower.briefs if one.objective is not None]
    assert status.run_half is not None
    for score, brief in zip(measured, briefs, strict=True):
        assert score.hi is not None
        assert score.hi - score.value == pytest.approx(status.run_half / brief.n**0.5)


def test_one_diverged_run_of_three_does_not_flatten_the_others() -> None:
    low, high = score_limits([(4.2, 0.1), (4.25, 0.1), (11.0, 0.1)], (4.26, 0.05), [4.26], 0.05)
    assert low < 4.1
    assert 4.35 < high < 4.5


def test_all_is_shown_where_most_are_worse_than_the_baseline() -> None:
    _, high = score_limits([(5.0, 0.1), (5.1, 0.1), (5.2, 0.1)], (4.26, 0.05), [4.26], 0.05)
    assert high > 5.3


def test_an_interval_of_one_degree_of_freedom_leaves_the_axis() -> None:
    low, high = score_limits([(4.2, 0.6)], (4.26, 0.5), [4.26], 0.05)
    assert (low, high) == pytest.approx((4.0, 4.46), abs=0.04)


def test_without_noise_there_is_room_around_what_is_there() -> None:
    assert score_limits([], None, [], None) == (0.0, 1.0)
    low, high = score_limits([(0.5, 0.0)], None, [], None)
    assert low < 0.5 < high
    low, high = score_limits([(4.4, 0.0), (4.6, 0.0)], (4.3, 0.0), [4.3], None)
    assert low < 4.3
    assert high > 4.4
