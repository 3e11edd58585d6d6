"""Colors, sizes and axes of every figure.

A figure is drawn once, in the light palette, whose colors are all distinct. In the SVG, each color
becomes a CSS variable (:mod:`trajectory.report.svg`), which has a light and a dark value in a style
sheet. So one picture is legible in both color schemes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from trainer.schema import Measure
from trajectory.report.iterations import LearningCurve, Outcome
from trajectory.statistics.intervals import Estimate, RunNoise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Ink:
    """A color's name and its values in the light and dark palettes."""

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
    "pruned": DISCARD,
    "refused": REFUSED,
}

WIDTH_IN = 8.4
"""A figure's width in inches; at 100 pixels an inch, that of a desktop column."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn figure, with its alternative text and the titles of its links."""

    name: str
    """The name of its files."""
    alt: str
    """Alternative text for readers who cannot see it."""
    figure: Figure
    titles: dict[str, str] = field(default_factory=dict)
    """Maps a link target to the text shown over it: ``#i15`` to a summary of iteration 15."""

    def __post_init__(self) -> None:
        """Lay out the figure once, before it is written to several files."""
        if (engine := self.figure.get_layout_engine()) is not None:
            engine.execute(self.figure)
            self.figure.set_layout_engine("none")


@contextmanager
def style() -> Iterator[None]:
    """Apply the style of all figures while they are drawn and written."""
    with chdir("/"):  # it would read a matplotlibrc, or wait for a pipe of that name
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
    }
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield


def sheet(height_in: float) -> Figure:
    """Return an empty figure."""
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415 (slow to load)

    return Sheet(figsize=(WIDTH_IN, height_in), layout="constrained")


def bare(axes: Axes, *, grid: Literal["x", "y"] = "x", steps: str = "") -> None:
    """Remove the frame, and leave a grid in one direction.

    :param steps: label of a horizontal axis of whole numbers.
    """
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.grid(visible=True, axis=grid)
    if steps:
        axes.set_xlabel(steps)
        axes.locator_params(axis="x", integer=True)


def show_scores(axis: Axis, measure: Measure) -> None:
    """Label an axis of objectives with the scores, which increase along it if higher is better.
    Call this after setting the limits."""
    if measure.direction == "minimise":
        return

    def text(objective: float, _: object) -> str:
        low, high = axis.get_view_interval()
        # As many decimals as the axis needs to tell its ticks apart
        decimals = max(0, 1 - math.floor(math.log10(abs(high - low) or 1.0)))
        return f"{measure.score(objective) + 0.0:.{decimals}f}".replace("-", "\u2212")

    axis.set_inverted(True)
    axis.set_major_formatter(text)


SHOWN = 0.985
"""Share of all points that the scale includes; spikes may exceed it."""

Stroke: TypeAlias = Literal["solid", "dashed", "dotted"]
_PATTERN: dict[Stroke, object] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.6))}


def draw_loss(
    axes: Axes, curve: LearningCurve, ink: Ink, name: str, stroke: Stroke = "solid"
) -> None:
    """Draw one curve, under its name in the legend."""
    axes.plot(
        curve.step,
        curve.loss,
        color=ink.light,
        linewidth=1.5,
        label=name,
        linestyle=_PATTERN[stroke],
    )


def finish_losses(
    axes: Axes, drawn: Sequence[LearningCurve], unit: str | None = "nats per token"
) -> None:
    """Scale and label the axes, once all curves are drawn.

    :param unit: unit of the losses; None if it is unknown.
    """
    losses = sorted(loss for curve in drawn for loss in curve.loss)
    low, high = losses[0], losses[min(len(losses) - 1, int(SHOWN * len(losses)))]
    margin = 0.05 * (high - low) or 0.1
    axes.set_ylim(low - margin, high + margin)
    bare(axes, grid="y", steps="step")
    axes.set_ylabel(f"training loss{f', {unit}' if unit else ''}")
    axes.legend(loc="upper right")


ROOM_SD = 8.0
"""Standard deviations of one run by which a score may be worse than usual and still be drawn."""
BAR_SD = 4.0
"""Half-length of intervals that the axis shows, in standard deviations. Intervals are longer only
with one or two degrees of freedom; shown whole, they would flatten the scores."""
MARGIN = 0.06


def score_limits(
    scores: Sequence[Estimate],
    baseline: Estimate | None,
    incumbents: Sequence[float],
    noise: RunNoise | None,
) -> tuple[float, float]:
    """Return the lowest and highest objective on the axis.

    A score is off the scale if it is worse than the median and the baseline by two limits: ROOM_SD
    standard deviations, and the amount by which the best score is better. So a diverged run does
    not flatten the rest.

    :param scores: means of candidates.
    :param baseline: None before it was measured.
    :param incumbents: posterior means of the incumbents.
    :param noise: noise of one run; None while it is unknown.
    """
    sd = noise.sigma if noise else 0.0
    drawn = [baseline] if baseline else []
    if scores:
        means = sorted(score.value for score in scores)
        usual = max([means[(len(means) - 1) // 2], *(score.value for score in drawn)])
        most = usual + max(ROOM_SD * sd, usual - means[0])
        drawn += [score for score in scores if score.value <= most]
    ends = [*incumbents]
    for score in drawn:
        half = 0.0 if score.hi is None else min(score.hi - score.value, BAR_SD * sd)
        ends += [score.value - half, score.value + half]
    if not ends:
        return 0.0, 1.0
    low, high = min(ends), max(ends)
    margin = MARGIN * (high - low) or 0.01 * abs(high) or 0.01
    return low - margin, high + margin
