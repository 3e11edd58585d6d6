"""Plot the long runs side by side: a panel per config, with the baseline behind it.

The figures of long runs, forecasts and ladders share one style.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoresearch.files import replace_file, writing_to
from trainer.spec import CurvePoint
from trajectory.rows import StressOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SUFFIXES = ("png", "svg")
DPI = 200
_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "autoresearch",
}


def draw_pictures(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Draw a figure in the common style, and return it in every format, by suffix."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to load)

    pictures = {}
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = draw()
        for suffix in SUFFIXES:
            picture = BytesIO()
            metadata = {"Date": None} if suffix == "svg" else None
            figure.savefig(picture, format=suffix, dpi=DPI, metadata=metadata)
            pictures[suffix] = picture.getvalue()
    return pictures


def save_figure(draw: Callable[[], Figure], stem: Path) -> list[Path]:
    """Draw a figure, write it beside ``stem`` in every format, and return the files.

    :raises MachineryError: if the disk refuses.
    """
    pictures = draw_pictures(draw)
    files = [stem.with_name(f"{stem.name}.{suffix}") for suffix in pictures]
    with writing_to(stem.parent):
        for file, picture in zip(files, pictures.values(), strict=True):
            replace_file(file, picture)
    return files


COLUMNS = 3
PANEL_IN = (2.6, 2.1)
"""Size of a panel in inches. Three panels are about as wide as a printed page."""
LEVEL_SHARE = 1 / 25
"""The window of the median drawn over a curve's raw loss, as a share of the curve's points."""
SHOWN_FROM = 0.03
# From Okabe and Ito's palette, which stays distinguishable in print and with the common color
# blindnesses.
_RUN, _BASELINE, _TROUBLE = "#0072B2", "#8C8C8C", "#D55E00"


@dataclass(frozen=True, slots=True)
class Run:
    """One long run's curve, and the step of its verdict."""

    curve: Sequence[CurvePoint]
    outcome: StressOutcome
    step: int | None


@dataclass(frozen=True, slots=True)
class Panel:
    """One config's long runs."""

    title: str
    subtitle: str
    runs: tuple[Run, ...]
    """The config's runs, one per seed."""


def save_plot(
    panels: Sequence[Panel], baseline: Panel | None, stem: Path, *, unit: str = "nats per token"
) -> list[Path]:
    """Draw the panels, write them beside ``stem`` in every format, and return the files.

    :param baseline: drawn in gray in every panel, and in a panel of its own at the end.
    :param unit: unit of the losses, in words.
    :raises MachineryError: if the disk refuses.
    """
    return save_figure(lambda: panel_figure(panels, baseline, unit), stem)


def panel_figure(panels: Sequence[Panel], baseline: Panel | None, unit: str) -> Figure:
    """Draw one panel per config, with the baseline behind each and in a panel of its own."""
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415 (slow to load)

    shown = [*panels, *([baseline] if baseline else [])]
    columns = 2 if len(shown) == 4 else min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    width, height = PANEL_IN
    figure = Sheet(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, shown, strict=False):
        _draw(axes, panel, None if panel is baseline else baseline)
        axes.xaxis.set_tick_params(labelbottom=True)
    grid.flat[0].set_ylim(*_limits(shown))
    _legend(figure)
    figure.supxlabel("step", fontsize=8)
    figure.supylabel(f"training loss, {unit}", fontsize=8)
    return figure


def _draw(axes: Axes, panel: Panel, baseline: Panel | None) -> None:
    axes.set_title(f"{panel.title}\n{panel.subtitle}", loc="left")
    axes.grid(visible=True, color="#E6E6E6", linewidth=0.6)
    for run in panel.runs:
        steps = [point.step for point in run.curve]
        losses = [point.loss for point in run.curve]
        axes.plot(steps, losses, color=_RUN, alpha=0.25, linewidth=0.5)
    for run in panel.runs:
        axes.plot(*_level(run.curve), color=_RUN, linewidth=1.3)
        if run.step is not None:
            axes.axvline(run.step, color=_TROUBLE, linestyle=":", linewidth=1.2)
    for run in baseline.runs if baseline is not None else ():
        axes.plot(*_level(run.curve), color=_BASELINE, linestyle="--", linewidth=1)


def _legend(figure: Figure) -> None:
    """Draw one legend for all panels, above them, where no curve can run into it."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 (slow to load)

    handles = [
        Line2D([], [], color=_RUN, linewidth=1.3, label="this config, a line a seed (median)"),
        Line2D([], [], color=_BASELINE, linestyle="--", linewidth=1, label="the baseline"),
        Line2D([], [], color=_TROUBLE, linestyle=":", linewidth=1.2, label="where it happened"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=7, handlelength=2)


def _level(curve: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    """Return steps and running medians of the loss."""
    width = max(3, int(len(curve) * LEVEL_SHARE)) // 2 * 2 + 1
    if len(curve) < width:
        return [point.step for point in curve], [point.loss for point in curve]
    windows = np.lib.stride_tricks.sliding_window_view([point.loss for point in curve], width)
    steps = [point.step for point in curve[width // 2 : len(curve) - width // 2]]
    return steps, [float(level) for level in np.median(windows, axis=1)]


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the y limits: from the lowest level to a little above the loss after the first
    SHOWN_FROM of the curves.

    The steep fall of the first steps would flatten everything else. A curve that leaves the plot
    later has diverged, as its verdict says.
    """
    curves = [run.curve for panel in panels for run in panel.runs if run.curve]
    if not curves:
        return 0.0, 1.0
    low = min(min(_level(curve)[1]) for curve in curves)
    early = [curve[int(SHOWN_FROM * (len(curve) - 1))].loss for curve in curves]
    high = max(low + 0.5, float(np.median(early)))
    margin = high - low
    return low - 0.05 * margin, high + 0.2 * margin
