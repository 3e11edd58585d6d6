"""Figures are legible: everything lies within the axes, and every axis has numbers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.present import known
from tests.support.reports import findings, simulated
from trajectory.report.canvas import DISCARD, PALETTE, PAPER, RULE, SERIES, style
from trajectory.report.figures.progress import progress
from trajectory.report.svg import draw


@pytest.fixture(autouse=True)
def _inked() -> Iterator[None]:
    with style():
        yield


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


def test_of_many_dots_those_that_can_be_seen_are_drawn(tmp_path: Path) -> None:
    (first,) = findings(tmp_path, simulated(1)).iterations
    campaign = findings(tmp_path, simulated(1))

    def dots(scores: list[float]) -> int:
        iterations = [
            replace(first, iter=i, outcome="discard", mean=score) for i, score in enumerate(scores)
        ]
        figure = progress(replace(campaign, iterations=tuple(iterations), reigns=()))
        return draw(known(figure.draw)).inline.count("h0")

    spread = [3.0 + i * 617 % 1000 / 1000 for i in range(5_000)]
    alone = dots(spread)
    assert alone > 4_000
    # A score far off the scale hides no dot, and dots on each other take no markup.
    assert dots([*spread, 1e9]) == pytest.approx(alone, rel=0.02)
    assert dots([3.0 + i % 7 / 7 for i in range(100_000)]) < 7_000


def test_the_band_is_the_interval_of_the_baseline_s_mean(tmp_path: Path) -> None:
    found = findings(tmp_path, simulated(30))
    late = replace(found.iterations[0], iter=40)  # it ended before lower ones
    found = replace(found, iterations=(late, *found.iterations))
    baseline = known(found.baseline)
    (axes,) = known(progress(found).draw)().figure.axes
    (band,) = [p for p in axes.patches if p.get_label() == "95 % interval of a mean"]
    (low, high) = band.get_extents().transformed(axes.transData.inverted()).intervaly
    assert (low, high) == pytest.approx((baseline.lo, baseline.hi))
    assert axes.get_xlim()[1] > 40
