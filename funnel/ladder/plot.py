"""Plot a ladder: loss against compute, the residuals of the laws, and the lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from funnel.forecast.power_law import Array
from funnel.forecast.scaling_law import ScalingFit
from funnel.ladder.points import LadderPoint, of_recipe
from funnel.ladder.result import LadderResult
from funnel.stress.plot import save_figure
from funnel.target.shape import size_text
from trajectory.ladder_plan import Recipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHEET_IN = (8.4, 2.9)
LAW_POINTS = 40
# From Okabe and Ito's palette, which stays distinguishable in print and with the common color
# blindnesses.
_COLOUR: dict[Recipe, str] = {"winner": "#0072B2", "baseline": "#8C8C8C"}
_MARKER: dict[Recipe, str] = {"winner": "o", "baseline": "s"}
_PREDICTED = "#D55E00"


def save_ladder_plot(result: LadderResult, stem: Path) -> list[Path]:
    """Draw the figure, write it beside ``stem`` in every format, and return the files.

    :raises MachineryError: if the disk refuses.
    """
    return save_figure(lambda: _figure(result), stem)


def _figure(result: LadderResult) -> Figure:
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415 (slow to load)

    figure = Sheet(figsize=SHEET_IN, layout="constrained")
    losses, residuals, lead = figure.subplots(1, 3)
    laws = list(_laws(result))
    _losses(losses, result, laws)
    _residuals(residuals, laws)
    _lead(lead, result)
    for axes in (losses, residuals):
        _logarithmic(axes, [point.flops for point in result.points], lambda flops: f"{flops:.0e}")
    sizes = result.lead.points if result.lead is not None else ()
    _logarithmic(lead, [point.params for point in sizes], lambda size: size_text(round(size)))
    for axes in (losses, residuals, lead):
        axes.grid(visible=True, color="#E6E6E6", linewidth=0.6)
    return figure


def _logarithmic(axes: Axes, values: Sequence[float], text: Callable[[float], str]) -> None:
    """Make the x axis logarithmic, with a few round numbers formatted by ``text``."""
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415 (slow to load)

    axes.set_xscale("log")
    narrow = bool(values) and max(values) < 100 * min(values)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if narrow else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: text(value))


def _laws(
    result: LadderResult,
) -> Iterator[tuple[Recipe, ScalingFit | None, list[LadderPoint]]]:
    fits: dict[Recipe, ScalingFit | None] = {"winner": result.winner, "baseline": result.baseline}
    for recipe, fit in fits.items():
        points = of_recipe(result.points, recipe)
        if points:
            yield recipe, fit, points


def _losses(
    axes: Axes,
    result: LadderResult,
    laws: Sequence[tuple[Recipe, ScalingFit | None, list[LadderPoint]]],
) -> None:
    axes.set_title("loss, and each ladder's law", loc="left")
    axes.set_xlabel("training FLOPs")
    axes.set_ylabel("val_bpb")
    for recipe, fit, points in laws:
        _scatter(axes, recipe, points, [point.val_bpb for point in points], label=recipe)
        if fit is not None:
            _law(axes, recipe, fit, points)
    if result.predicted is not None:
        at = {point.recipe: point.flops for point in result.points}
        for number, outcome in enumerate(result.predicted.outcomes):
            if outcome.recipe in at:
                axes.errorbar(
                    [at[outcome.recipe]],
                    [outcome.middle],
                    yerr=[[outcome.middle - outcome.low], [outcome.high - outcome.middle]],
                    color=_PREDICTED,
                    capsize=3,
                    linewidth=1,
                    marker="_",
                    label="predicted" if number == 0 else None,
                )
    axes.legend(fontsize=7)


def _law(axes: Axes, recipe: Recipe, fit: ScalingFit, points: Sequence[LadderPoint]) -> None:
    """Draw the law along the line from the smallest to the largest point."""
    ends = sorted(points, key=lambda point: point.flops)
    first, last = ends[0], ends[-1]
    share_P = np.linspace(0.0, 1.0, LAW_POINTS)

    def between(low: float, high: float) -> Array:
        along: Array = np.exp((1 - share_P) * np.log(low) + share_P * np.log(high))
        return along

    low_P, middle_P, high_P = fit.predict(
        between(first.params, last.params), between(first.tokens, last.tokens)
    )
    flops_P = between(first.flops, last.flops)
    axes.plot(flops_P, middle_P, color=_COLOUR[recipe], linewidth=1)
    axes.fill_between(flops_P, low_P, high_P, color=_COLOUR[recipe], alpha=0.12, linewidth=0)


def _residuals(
    axes: Axes, laws: Sequence[tuple[Recipe, ScalingFit | None, list[LadderPoint]]]
) -> None:
    axes.set_title("what the laws leave over", loc="left")
    axes.set_xlabel("training FLOPs")
    axes.set_ylabel("seen over law, %")
    axes.axhline(0.0, color="#444444", linewidth=0.8)
    for recipe, fit, points in laws:
        if fit is not None:
            over = [
                100 * (point.val_bpb / float(fit.law.at(point.params, point.tokens)) - 1)
                for point in points
            ]
            _scatter(axes, recipe, points, over)


def _scatter(
    axes: Axes,
    recipe: Recipe,
    points: Sequence[LadderPoint],
    values: Sequence[float],
    *,
    label: str | None = None,
) -> None:
    axes.scatter(
        [point.flops for point in points],
        values,
        s=14,
        color=_COLOUR[recipe],
        marker=_MARKER[recipe],
        label=label,
    )


def _lead(axes: Axes, result: LadderResult) -> None:
    axes.set_title("the winner's lead", loc="left")
    axes.set_xlabel("parameters without tables")
    axes.set_ylabel("baseline less winner, bpb")
    axes.axhline(0.0, color="#444444", linewidth=0.8)
    if result.lead is None:
        return
    points = sorted(result.lead.points, key=lambda point: point.flops)
    axes.scatter(
        [point.params for point in points],
        [point.lead_bpb for point in points],
        s=[12 * point.seeds for point in points],
        color=_COLOUR["winner"],
    )
    # Along the ladder, the rungs' own lengths say which compute belongs to a size.
    own = {point.rung: point for point in reversed(points)}
    line = [own[rung] for rung in sorted(own)]
    band = np.array([result.lead.at(point.flops) for point in line])
    sizes = [point.params for point in line]
    axes.plot(sizes, band[:, 1], color=_COLOUR["winner"], linewidth=1)
    axes.fill_between(
        sizes, band[:, 0], band[:, 2], color=_COLOUR["winner"], alpha=0.12, linewidth=0
    )
