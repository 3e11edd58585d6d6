"""Format the result of a ladder as lines and JSON, and draw it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from autoresearch.words import duration_text
from funnel.forecast.scaling_law import ScalingFit
from funnel.ladder.lead import Lead
from funnel.ladder.points import LadderPoint, of_recipe
from funnel.ladder.result import LadderResult
from trainer.schema import Config
from trajectory.report.canvas import DISCARD, KEEP, MUTED, REFUSED, Ink, Picture, sheet
from trajectory.rows import LadderPlanRow, LadderPredictionRow, Recipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SIGNIFICANCE = "95 %"


def plan_lines(plan: LadderPlanRow) -> Iterator[str]:
    """Yield lines on the rungs that are about to be trained."""
    chosen = {"stress": "the latest stress test's best", "search": "the search's incumbent"}
    alone = "" if plan.baseline != plan.winner else "; it is the baseline itself"
    yield (
        f"ladder    {plan.largest} rungs; the winner is {chosen[plan.chosen_by]}{alone}; rates "
        f"carried from a schedule of {plan.source_steps:,} steps"
    )
    yield (
        f"{'rung':>6}  {'recipe':<8} {'params':>7} {'tokens':>7} {'steps':>7} {'lr':>8} "
        f"{'seeds':>5} {'a run':>7}  shape"
    )
    for run in plan.runs:
        yield (
            f"{run.rung:>6}  {run.recipe:<8} {amount(run.params):>7} {amount(run.tokens):>7} "
            f"{run.steps:>7,} {run.config.lr:>8.2g} {len(run.seeds):>5} "
            f"{duration_text(run.expected_s):>7}  {shape_text(run.config)}"
        )
    for note in plan.notes:
        yield f"          {note}"


def prediction_lines(row: LadderPredictionRow) -> Iterator[str]:
    """Yield lines on the prediction for the largest rung, before it begins."""
    for loss in row.predicted:
        yield (
            f"predicted {loss.recipe} at {amount(loss.params)} parameters and "
            f"{amount(loss.tokens)} tokens: {loss.middle:.4f} bpb ({loss.low:.4f} to "
            f"{loss.high:.4f}, 95 %)"
        )
    yield f"          written at {row.at}, SHA-256 {row.sha256}"


def lines(result: LadderResult) -> Iterator[Text]:
    """Yield the lines for a terminal."""
    yield from _table(result)
    for left_out in result.left_out:
        yield Text(f"left out  {left_out}", style="yellow")
    if result.winner is not None:
        yield _law_line("winner", result.winner)
    if result.baseline is not None:
        yield _law_line("baseline", result.baseline)
    if result.no_law is not None:
        yield Text(f"law       none: {result.no_law}")
    if result.lead is not None:
        yield from map(Text, lead_lines(result.lead))
    if result.predicted is None and not result.missing:
        yield Text("predicted nothing: the largest rung was trained without a prediction")
    for outcome in result.predicted.outcomes if result.predicted else ():
        seen = "not trained yet, or without a measurement"
        if outcome.error is not None:
            place = "inside" if outcome.within else "OUTSIDE"
            seen = f"seen {outcome.seen_bpb:.4f}: error {outcome.error:+.2%}, {place} the interval"
        yield Text(
            f"predicted {outcome.recipe} {outcome.middle:.4f} bpb ({outcome.low:.4f} to "
            f"{outcome.high:.4f}), {seen}",
            style="yellow" if outcome.within is False else "",
        )
    if result.predicted is not None:
        yield Text(f"          SHA-256 {result.predicted.sha256} of {result.predicted.at}")


def lead_lines(lead: Lead) -> Iterator[str]:
    """Yield the lead, its trend, and the smallest decline that would have been detected."""
    yield (
        f"lead      {lead.at_largest_bpb:+.4f} bpb at the largest rung ({lead.at_largest_low:+.4f} "
        f"to {lead.at_largest_high:+.4f}, {SIGNIFICANCE}), by the line through "
        f"{len(lead.points)} sizes and lengths"
    )
    slope = (
        f"{lead.per_tenfold_bpb:+.4f} bpb with every tenfold of compute "
        f"({lead.per_tenfold_low:+.4f} to {lead.per_tenfold_high:+.4f})"
    )
    said = {
        "grows": f"it grows: {slope}",
        "shrinks": f"it shrinks: {slope}",
        "holds": f"it holds within the precision of this ladder: {slope}",
        "unclear": f"too few or too noisy points to say whether it grows or shrinks: {slope}",
    }
    yield f"          {said[lead.trend]}"
    share = f", {lead.visible_share:.0%} of the lead" if lead.visible_share is not None else ""
    yield (
        f"          power: a decline of {lead.visible_bpb:.4f} bpb a tenfold{share} would be seen "
        "by four ladders of five"
    )
    if not lead.stands:
        yield "          at the largest rung the lead is not distinguishable from none"


def result_json(result: LadderResult) -> dict[str, Any]:
    """Return the JSON fields."""
    plan, lead = result.plan, result.lead
    return {
        "plan_sha256": plan.sha256,
        "asked": plan.asked.model_dump(mode="json"),
        "chosen_by": plan.chosen_by,
        "winner": plan.winner.canonical(),
        "baseline": plan.baseline.canonical(),
        "source_steps": plan.source_steps,
        "complete": result.missing == 0,
        "missing": result.missing,
        "left_out": list(result.left_out),
        "points": [
            point.model_dump(mode="json", exclude={"config"})
            | {"config_hash": point.config.config_hash, "lr": point.config.lr}
            for point in result.points
        ],
        "laws": {"winner": _law_json(result.winner), "baseline": _law_json(result.baseline)},
        "no_law": result.no_law,
        "lead": None
        if lead is None
        else lead.model_dump(mode="json")
        | {
            "trend": lead.trend,
            "stands": lead.stands,
            "visible_bpb": lead.visible_bpb,
            "visible_share": lead.visible_share,
        },
        "predicted": None
        if result.predicted is None
        else {
            "sha256": result.predicted.sha256,
            "at": result.predicted.at,
            "outcomes": [
                outcome.model_dump(mode="json") | {"error": outcome.error, "within": outcome.within}
                for outcome in result.predicted.outcomes
            ],
        },
    }


def _table(result: LadderResult) -> Iterator[Text]:
    yield Text(
        f"{'rung':>6}  {'params':>7} {'tokens':>7} {'FLOPs':>8}   {'winner':>8} {'baseline':>9} "
        f"{'lead':>8} {'seeds':>5}",
        style="bold",
    )
    places = {(point.rung, point.length): point for point in reversed(result.points)}
    for place in sorted(places):
        own = [p for p in result.points if (p.rung, p.length) == place]
        winner, baseline = _mean(own, "winner"), _mean(own, "baseline")
        lead = "" if winner is None or baseline is None else f"{baseline - winner:+.4f}"
        point = places[place]
        yield Text(
            f"{point.rung:>6}  {amount(point.params):>7} {amount(point.length):>7} "
            f"{point.flops:>8.2g}   {_score(winner):>8} {_score(baseline):>9} {lead:>8} "
            f"{len({p.seed for p in own}):>5}"
        )
    if result.missing:
        yield Text(f"          {result.missing} runs are still missing", style="yellow")


def _mean(points: list[LadderPoint], recipe: str) -> float | None:
    scores = [point.val_bpb for point in points if point.recipe == recipe]
    return sum(scores) / len(scores) if scores else None


def _score(bpb: float | None) -> str:
    return "" if bpb is None else f"{bpb:.4f}"


def _law_line(name: str, fit: ScalingFit) -> Text:
    law = fit.law
    return Text(
        f"law       {name}: {law.floor:.3f} + {law.a:.3g} N^-{law.alpha:.3f} + {law.b:.3g} "
        f"D^-{law.beta:.3f} bpb; a run scatters {fit.scatter:.2%} about it"
    )


def _law_json(fit: ScalingFit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "law": fit.law.model_dump(mode="json"),
        "scatter": fit.scatter,
        "drift_per_doubling": fit.drift_per_doubling,
        "runs": len(fit.runs),
    }


def amount(number: float) -> str:
    """Format parameters or tokens to three digits: ``87.5 k``, ``1.84 M``, ``2.1 B``."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.3g}"


def shape_text(config: Config) -> str:
    """Format a shape: ``96 wide, 3 deep, 3 heads, ff 384``."""
    heads = "head" if config.n_head == 1 else "heads"
    return (
        f"{config.d_model} wide, {config.n_layer} deep, {config.n_head} {heads}, ff {config.d_ff}"
    )


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
