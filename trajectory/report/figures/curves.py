"""Learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from trajectory.report.drawing.canvas import BASE, FAILED, SERIES, Ink, Picture, sheet
from trajectory.report.reading.curves import LearningCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 0.985
"""Share of all points that the scale has room for: a spike may leave it."""

Stroke: TypeAlias = Literal["solid", "dashed", "dotted"]
_PATTERN: dict[Stroke, object] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.6))}

Fate: TypeAlias = Literal["baseline", "survived", "failed"]
"""Of a long run, as it is drawn: the baseline's only where it survived."""


def draw_best(best: Sequence[tuple[str, LearningCurve]], baseline: LearningCurve | None) -> Picture:
    """The best configs' beside the baseline's.

    :param best: what each is called in the legend, and its curve, the best first.
    """
    figure = sheet(3.7)
    axes = figure.subplots()
    if baseline is not None:
        _line(axes, baseline, BASE, f"baseline, {_runs(baseline)}", "dashed")
    for ink, (name, curve) in zip(SERIES, best, strict=False):
        _line(axes, curve, ink, f"{name}, {_runs(curve)}")
    drawn = [curve for _, curve in best] + ([baseline] if baseline else [])
    words = f"Training loss of the {len(best)} best configs."
    return _finished(figure, axes, drawn, "learning-curves", words)


def draw_long(runs: Sequence[tuple[str, Fate, LearningCurve]]) -> Picture:
    """The long runs' curves: dashed where the run did not survive, dotted where the colours begin
    again.

    :param runs: what each is called, what became of it, and its curve.
    """
    figure = sheet(3.9)
    axes = figure.subplots()
    survivors = 0
    for name, fate, curve in runs:
        if fate == "baseline":
            _line(axes, curve, BASE, name)
        elif fate == "failed":
            _line(axes, curve, FAILED, name, "dashed")
        else:
            again = survivors >= len(SERIES)
            ink = SERIES[survivors % len(SERIES)]
            _line(axes, curve, ink, name, "dotted" if again else "solid")
            survivors += 1
    words = f"Training loss of {len(runs)} configs' long runs."
    return _finished(figure, axes, [curve for _, _, curve in runs], "long-runs", words)


def _line(axes: Axes, curve: LearningCurve, ink: Ink, name: str, stroke: Stroke = "solid") -> None:
    axes.plot(
        curve.step,
        curve.loss,
        color=ink.light,
        linewidth=1.5,
        label=name,
        linestyle=_PATTERN[stroke],
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
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("training loss, nats per token")
    axes.spines[:].set_visible(False)
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper right")
    return Picture(name, words, figure)
