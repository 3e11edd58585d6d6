"""Learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajectory.report.curves import LearningCurve
from trajectory.report.figures.canvas import BASE, DISCARD, FAILED, SERIES, Ink, Picture, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 0.985
"""Share of all points that the scale has room for: a spike may leave it."""


def draw_best(best: Sequence[tuple[str, LearningCurve]], baseline: LearningCurve | None) -> Picture:
    """The best configs' beside the baseline's.

    :param best: what each is called in the legend, and its curve, the best first.
    """
    figure = sheet(3.7)
    axes = figure.subplots()
    if baseline is not None:
        _line(axes, baseline, BASE, f"baseline, {_runs(baseline)}", dashed=True)
    for ink, (name, curve) in zip(SERIES, best, strict=False):
        _line(axes, curve, ink, f"{name}, {_runs(curve)}")
    drawn = [curve for _, curve in best] + ([baseline] if baseline else [])
    words = f"Training loss of the {len(best)} best configs."
    return _finished(figure, axes, drawn, "learning-curves", words)


def draw_long(runs: Sequence[tuple[str, bool, LearningCurve]]) -> Picture:
    """The long runs' curves.

    :param runs: what each is called, whether it survived, and its curve.
    """
    figure = sheet(3.9)
    axes = figure.subplots()
    survivors = 0
    for name, survived, curve in runs:
        if survived and survivors < len(SERIES):
            _line(axes, curve, SERIES[survivors], name)
            survivors += 1
        else:
            _line(axes, curve, DISCARD if survived else FAILED, name, dashed=not survived)
    words = f"Training loss of {len(runs)} configs' long runs."
    return _finished(figure, axes, [curve for _, _, curve in runs], "long-runs", words)


def _line(axes: Axes, curve: LearningCurve, ink: Ink, name: str, *, dashed: bool = False) -> None:
    axes.plot(
        curve.step,
        curve.loss,
        color=ink.light,
        linewidth=1.5,
        label=name,
        linestyle=(0, (4, 2)) if dashed else "-",
    )


def _runs(curve: LearningCurve) -> str:
    return f"n={curve.seeds}"


def _finished(
    figure: Figure, axes: Axes, drawn: Sequence[LearningCurve], name: str, words: str
) -> Picture:
    losses = sorted(loss for curve in drawn for loss in curve.loss)
    low, high = losses[0], losses[min(len(losses) - 1, int(SHOWN * len(losses)))]
    margin = 0.05 * (high - low) or 0.1
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, nats per token")
    axes.spines[:].set_visible(False)
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper right")
    return Picture(name, words, figure)
