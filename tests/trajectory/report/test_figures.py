"""Figures are legible: everything lies within the axes, and every axis has numbers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.support.reports import findings, simulated
from trajectory.report.canvas import (
    DISCARD,
    PALETTE,
    PAPER,
    RULE,
    SERIES,
    style,
)
from trajectory.report.figures.progress import Progress
from trajectory.report.figures.progress_points import Point
from trajectory.report.svg import draw
from trajectory.statistics.intervals import Estimate


@pytest.fixture(autouse=True)
def _inked() -> Iterator[None]:
    with style():
        yield


def visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def numbers(axes: Axes) -> list[str]:
    """Return the visible labels of the x axis."""
    return [t.label1.get_text() for t in axes.xaxis.get_major_ticks() if t.label1.get_visible()]


@pytest.mark.parametrize("light", ["light", "dark"])
def test_every_ink_stands_out_from_paper(light: str) -> None:
    for ink in PALETTE:
        least = 1.0 if ink in (PAPER, RULE) else 3.0 if ink in (DISCARD, *SERIES) else 4.5
        assert contrast(getattr(ink, light), getattr(PAPER, light)) >= least, ink.name


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two ``#rrggbb`` colors, by WCAG 2.2."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def one(value: float, n: int = 1) -> Estimate:
    return Estimate(value, None, None, n)


def test_an_iteration_that_ended_before_a_lower_one_is_not_cut_off() -> None:
    baseline = Estimate(4.29, 4.27, 4.31, 5)
    points = tuple(Point(i, "failed", None) for i in (1, 2, 40, 3))
    (axes,) = visible(Progress(points, (), baseline, 0.05).draw().figure)
    assert axes.get_xlim()[1] > 40


def dots(scores: list[float]) -> int:
    points = tuple(Point(i, "discard", one(score)) for i, score in enumerate(scores))
    return draw(Progress(points, (), None, 0.05).draw()).inline.count("h0")


def test_of_many_dots_those_that_can_be_seen_are_drawn() -> None:
    spread = [3.0 + i * 617 % 1000 / 1000 for i in range(5_000)]
    alone = dots(spread)
    assert alone > 4_000
    # A score far off the scale hides no dot, and dots on each other take no markup.
    assert dots([*spread, 1e9]) == pytest.approx(alone, rel=0.02)
    assert dots([3.0 + i % 7 / 7 for i in range(100_000)]) < 7_000


def test_the_band_is_the_interval_of_the_baseline_s_mean(tmp_path: Path) -> None:
    found = Progress.of(findings(tmp_path, simulated(30)))
    assert found.baseline is not None
    for picture in (found.draw(), found.draw_narrow()):
        (axes,) = visible(picture.figure)
        (band,) = [p for p in axes.patches if p.get_label() == "95 % interval of a mean"]
        (low, high) = band.get_extents().transformed(axes.transData.inverted()).intervaly
        assert (low, high) == pytest.approx((found.baseline.lo, found.baseline.hi))
