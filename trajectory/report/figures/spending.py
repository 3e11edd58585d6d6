"""Time and energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajectory.report.drawing.canvas import (
    BASE,
    DISCARD,
    FAILED,
    KEEP,
    REFUSED,
    RULE,
    SERIES,
    Ink,
    Picture,
    bare,
    sheet,
)
from trajectory.report.reading.turns import PARTS
from trajectory.report.spending import Spending

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PART_INK: dict[str, Ink] = {
    "training": KEEP,
    "evaluation": SERIES[5],
    "setup": SERIES[2],
    "proposing": REFUSED,
    "failed": FAILED,
    "other": DISCARD,
}
PART_NAME = {
    "training": "training",
    "evaluation": "evaluation",
    "setup": "trial set-up",
    "proposing": "proposing",
    "failed": "failed trials",
    "other": "the rest",
}


def draw(found: Spending) -> Picture:
    """Seconds by iteration, stacked by where they went; below, energy where it was metered."""
    metered = any(bar.energy_wh is not None for bar in found.bars)
    figure = sheet(4.9 if metered else 3.3)
    if metered:
        time, energy = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [2, 1]})
        _energy(energy, found)
    else:
        time = energy = figure.subplots()
    _seconds(time, found)
    energy.set_xlabel("iteration")
    energy.locator_params(axis="x", integer=True)
    figure.legend(loc="outside upper left", ncols=6, handlelength=1, columnspacing=1.4)
    words = f"{found.total.total:.0f} s of work, of which training {found.total.training:.0f} s."
    return Picture("time-and-energy", words, figure)


def _seconds(axes: Axes, found: Spending) -> None:
    edges = _edges(found)
    floor = [0.0] * len(found.bars)
    for part in PARTS:
        heights = [bar.spent.by_part()[part] for bar in found.bars]
        if not any(heights):
            continue
        top = [a + b for a, b in zip(floor, heights, strict=True)]
        axes.stairs(
            top,
            edges,
            baseline=floor,
            fill=True,
            color=PART_INK[part].light,
            linewidth=0,
            label=PART_NAME[part],
        )
        floor = top
    axes.set_ylabel("seconds an iteration")
    _tidy(axes)


def _energy(axes: Axes, found: Spending) -> None:
    axes.stairs(
        [bar.energy_wh or 0.0 for bar in found.bars],
        _edges(found),
        fill=True,
        color=BASE.light,
        alpha=0.75,
        linewidth=0,
    )
    axes.set_ylabel("Wh an iteration")
    _tidy(axes)


def _edges(found: Spending) -> list[float]:
    return [bar.first - 0.5 for bar in found.bars] + [found.bars[-1].last + 0.5]


def _tidy(axes: Axes) -> None:
    bare(axes, grid="y")
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(RULE.light)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
