"""Learning curves of the training loss on shared axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from trajectory.report.drawing.canvas import Ink
from trajectory.report.reading.curves import LearningCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 0.985
"""Share of all points that the scale includes; spikes may exceed it."""

Stroke: TypeAlias = Literal["solid", "dashed", "dotted"]
_PATTERN: dict[Stroke, object] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.6))}


def line(axes: Axes, curve: LearningCurve, ink: Ink, name: str, stroke: Stroke = "solid") -> None:
    """Draw one curve, under its name in the legend."""
    axes.plot(
        curve.step,
        curve.loss,
        color=ink.light,
        linewidth=1.5,
        label=name,
        linestyle=_PATTERN[stroke],
    )


def finish(axes: Axes, drawn: Sequence[LearningCurve], unit: str | None = "nats per token") -> None:
    """Scale and label the axes, once all curves are drawn.

    :param unit: unit of the losses; None if it is unknown.
    """
    losses = sorted(loss for curve in drawn for loss in curve.loss)
    low, high = losses[0], losses[min(len(losses) - 1, int(SHOWN * len(losses)))]
    margin = 0.05 * (high - low) or 0.1
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("step")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel(f"training loss{f', {unit}' if unit else ''}")
    axes.spines[:].set_visible(False)
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper right")
