"""The report and the live page draw the same axis of scores."""

from pathlib import Path

import pytest

from tests.support.present import known
from tests.support.reports import findings, simulated
from trajectory.live.follower import Follower
from trajectory.report.canvas import score_limits
from trajectory.report.figures.progress import believed_steps, points_of
from trajectory.statistics.intervals import Estimate, RunNoise


@pytest.mark.parametrize(("iterations", "seed"), [(0, 5), (2, 10), (120, 5)])
def test_report_and_live_page_share_their_axis(tmp_path: Path, iterations: int, seed: int) -> None:
    found = findings(tmp_path, simulated(iterations, seed))
    points, baseline = points_of(found), known(found.baseline)
    follower = Follower(tmp_path)
    follower.poll()
    status = follower.status()
    measured = [point.score for point in points if point.score]
    steps = [believed for _, believed in believed_steps(found)]
    assert status.scale == pytest.approx(score_limits(measured, baseline, steps, found.noise))
    assert status.baseline_lo == baseline.lo
    assert status.baseline_hi == baseline.hi
    briefs = [one for one in follower.briefs if one.objective is not None]
    for score, brief in zip(measured, briefs, strict=True):
        half = known(status.run_half) / brief.n**0.5
        assert known(score.hi) - score.value == pytest.approx(half)


def estimate(value: float, half: float = 0.0) -> Estimate:
    return Estimate(value, value - half, value + half, 1)


NOISE = RunNoise(0.05, 10)
BASELINE = estimate(4.26, 0.05)


@pytest.mark.parametrize(
    ("scores", "baseline", "incumbents", "noise", "low", "high"),
    [
        # One diverged run of three does not flatten the others.
        ([(4.2, 0.1), (4.25, 0.1), (11.0, 0.1)], BASELINE, [4.26], NOISE, (4.0, 4.1), (4.35, 4.5)),
        # All are shown where most are worse than the baseline.
        ([(5.0, 0.1), (5.1, 0.1), (5.2, 0.1)], BASELINE, [4.26], NOISE, (4.1, 4.21), (5.3, 5.4)),
        # An interval of one degree of freedom leaves the axis.
        ([(4.2, 0.6)], estimate(4.26, 0.5), [4.26], NOISE, (3.96, 4.04), (4.42, 4.5)),
        # Without noise there is space around what is there.
        ([], None, [], None, (0.0, 0.0), (1.0, 1.0)),
        ([(0.5, 0.0)], None, [], None, (0.4, 0.499), (0.501, 0.6)),
        ([(4.4, 0.0), (4.6, 0.0)], estimate(4.3), [4.3], None, (4.2, 4.299), (4.401, 4.7)),
    ],
)
def test_the_axis_shows_what_matters(
    scores: list[tuple[float, float]],
    baseline: Estimate | None,
    incumbents: list[float],
    noise: RunNoise | None,
    low: tuple[float, float],
    high: tuple[float, float],
) -> None:
    ends = score_limits([estimate(*one) for one in scores], baseline, incumbents, noise)
    for end, (least, most) in zip(ends, (low, high), strict=True):
        assert least <= end <= most
