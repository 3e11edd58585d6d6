"""Paper and ink for every figure: one palette in two lights, one set of sizes.

A figure is drawn once, in the light palette, whose colours are all distinct. In the SVG each colour
becomes a class (:mod:`trajectory.report.drawing.svg`), and a style sheet gives the class its colour
in the light or the dark palette; so one picture is legible on both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer.spec import Measure
from trajectory.report.reading.turns import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Ink:
    """One colour's name and its two values."""

    name: str
    light: str
    dark: str


INK = Ink("ink", "#1a1f27", "#e8eaee")
MUTED = Ink("muted", "#626b78", "#9ba5b3")
RULE = Ink("rule", "#dfe3e9", "#343b46")
PAPER = Ink("paper", "#ffffff", "#14181f")
KEEP = Ink("keep", "#0a7d5a", "#3fcf9b")
DISCARD = Ink("discard", "#828c9b", "#7d8899")
FAILED = Ink("failed", "#c0392b", "#ff8578")
REFUSED = Ink("refused", "#96620f", "#e5b454")
BASE = Ink("base", "#3d5a98", "#8fb0f5")
SERIES = (
    Ink("series1", "#0b7e5b", "#40d09c"),
    Ink("series2", "#c2571a", "#ff9d5c"),
    Ink("series3", "#6f4bb2", "#b99bf5"),
    Ink("series4", "#ad3a6f", "#f286b5"),
    Ink("series5", "#8a7416", "#d6c04d"),
    Ink("series6", "#2f7f9e", "#6cc6e8"),
)
PALETTE = (INK, MUTED, RULE, PAPER, KEEP, DISCARD, FAILED, REFUSED, BASE, *SERIES)
OUTCOME_INK: dict[Outcome, Ink] = {
    "keep": KEEP,
    "discard": DISCARD,
    "failed": FAILED,
    "refused": REFUSED,
}

LAYOUT_PASSES = 2
"""Ticks may change once the axes have their size, and with them the room that labels take."""
WIDTH_IN = 8.4
"""A figure's width; at 100 pixels an inch, that of a desktop column."""
NARROW_IN = 3.6
"""The width of a figure for phones; at 100 pixels an inch, that of a phone's column."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn figure, and what the page says of it."""

    name: str
    """The name of its files."""
    alt: str
    """What a reader who cannot see it is told."""
    figure: Figure
    titles: dict[str, str] = field(default_factory=dict)
    """Link target to the words shown over it: ``#i15`` to what iteration 15 was."""

    def __post_init__(self) -> None:
        """Lay it out, once for all files it is written to."""
        if (engine := self.figure.get_layout_engine()) is not None:
            for _ in range(LAYOUT_PASSES):
                engine.execute(self.figure)
            self.figure.set_layout_engine("none")


@contextmanager
def style() -> Iterator[None]:
    """How all figures look, for as long as they are drawn and written."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to load)

    settings: dict[Any, Any] = {
        "font.size": 9.0,
        "axes.labelsize": 9.0,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.edgecolor": RULE.light,
        "axes.labelcolor": MUTED.light,
        "axes.titlecolor": INK.light,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "grid.color": RULE.light,
        "grid.linewidth": 0.7,
        "xtick.color": MUTED.light,
        "ytick.color": MUTED.light,
        "xtick.major.size": 0.0,
        "ytick.major.size": 0.0,
        "text.color": INK.light,
        "text.parse_math": False,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "figure.facecolor": PAPER.light,
        "axes.facecolor": "none",
        "savefig.facecolor": PAPER.light,
        "lines.solid_capstyle": "round",
        "svg.fonttype": "none",
        "svg.hashsalt": "autoresearch",
    }
    with mpl.rc_context(settings):
        yield


def sheet(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Return an empty figure."""
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415 (slow to load)

    return Sheet(figsize=(width_in, height_in), layout="constrained")


def bare(axes: Axes, *, grid: str = "x") -> None:
    """Take the frame away, and leave a grid in one direction."""
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.grid(visible=True, axis="x" if grid == "x" else "y")


def show_scores(axis: Axis, measure: Measure) -> None:
    """Number an axis of objectives by the scores they are; where those are to grow, they do so
    along it. After its limits are set."""
    if measure.direction == "minimise":
        return
    axis.set_inverted(True)
    axis.set_major_formatter(lambda objective, _: _score_text(axis, measure.score(objective)))


def _score_text(axis: Axis, score: float) -> str:
    """With as many decimals as the axis has room to tell apart."""
    low, high = axis.get_view_interval()
    decimals = max(0, 1 - math.floor(math.log10(abs(high - low) or 1.0)))
    return f"{score + 0.0:.{decimals}f}".replace("-", "\u2212")
