"""Draw a ladder: loss against compute with the laws and the prediction, and the winner's lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from funnel.forecast.scaling_law import ScalingFit
from funnel.ladder.points import LadderPoint, of_recipe
from funnel.ladder.result import LadderResult
from trajectory.report.canvas import DISCARD, KEEP, MUTED, REFUSED, Ink, Picture, sheet
from trajectory.rows import Recipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAW_POINTS = 40
_INK: dict[Recipe, Ink] = {"winner": KEEP, "baseline": DISCARD}


def ladder_picture(result: LadderResult) -> Picture:
    """Draw the ladder."""
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415 (slow to load)

    figure = sheet(3.2)
    losses, lead = figure.subplots(1, 2, sharex=True)
    fits: dict[Recipe, ScalingFit | None] = {"winner": result.winner, "baseline": result.baseline}
    for recipe, fit in fits.items():
        if own := of_recipe(result.points, recipe):
            _losses(losses, result, recipe, fit, own)
    losses.set_title("loss, and each ladder's law")
    losses.set_ylabel("val_bpb")
    losses.legend()
    lead.set_title("the winner's lead")
    lead.set_ylabel("baseline less winner, bpb")
    lead.axhline(0.0, color=MUTED.light, linewidth=0.8)
    if result.lead is not None:
        points = sorted(result.lead.points, key=lambda point: point.flops)
        at, sizes = [point.flops for point in points], [12 * point.seeds for point in points]
        lead.scatter(at, [point.lead_bpb for point in points], s=sizes, color=KEEP.light)
        low, middle, high = np.array([result.lead.at(compute) for compute in at]).T
        lead.plot(at, middle, color=KEEP.light, linewidth=1)
        lead.fill_between(at, low, high, color=KEEP.light, alpha=0.12, linewidth=0)
    flops = [point.flops for point in result.points]
    is_narrow = bool(flops) and max(flops) < 100 * min(flops)
    losses.set_xscale("log")  # the other axis is shared
    losses.xaxis.set_major_locator(LogLocator(subs=(1, 3) if is_narrow else (1,)))
    losses.xaxis.set_minor_locator(NullLocator())
    losses.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    figure.supxlabel("training FLOPs", fontsize="medium", color=MUTED.light)
    return Picture("ladder", "Loss and the winner's lead against compute.", figure)


def _losses(
    axes: Axes,
    result: LadderResult,
    recipe: Recipe,
    fit: ScalingFit | None,
    points: Sequence[LadderPoint],
) -> None:
    ends = sorted(points, key=lambda point: point.flops)
    flops, scores = [point.flops for point in ends], [point.val_bpb for point in ends]
    axes.scatter(flops, scores, s=14, color=_INK[recipe].light, label=recipe)
    if fit is not None:
        first, last, ink = ends[0], ends[-1], _INK[recipe].light
        flops_P = np.geomspace(first.flops, last.flops, LAW_POINTS)
        params_P = np.geomspace(first.params, last.params, LAW_POINTS)
        tokens_P = np.geomspace(first.tokens, last.tokens, LAW_POINTS)
        low_P, middle_P, high_P = fit.predict(params_P, tokens_P)
        axes.plot(flops_P, middle_P, color=ink, linewidth=1)
        axes.fill_between(flops_P, low_P, high_P, color=ink, alpha=0.12, linewidth=0)
    for outcome in result.predicted.outcomes if result.predicted else ():
        if outcome.recipe == recipe:
            axes.errorbar(
                [flops[-1]],
                [outcome.middle],
                yerr=[[outcome.middle - outcome.low], [outcome.high - outcome.middle]],
                color=REFUSED.light,
                capsize=3,
                linewidth=1,
                marker="_",
                label="predicted" if recipe == "winner" else None,
            )
