"""Which figures a campaign has: those with something to show."""

from __future__ import annotations

from collections.abc import Iterator

from trajectory.longruns import STANDING
from trajectory.report.drawing.canvas import Picture
from trajectory.report.effects import KnobEffect
from trajectory.report.figures import (
    coverage,
    curves,
    knobs,
    longruns,
    progress,
    proposers,
    spending,
)
from trajectory.report.findings import Findings
from trajectory.report.longruns import LongRun


def pictures(found: Findings) -> Iterator[Picture]:
    """Draw them, in the page's order; within :func:`trajectory.report.drawing.canvas.style`."""
    if any(point.score for point in found.progress.points) or (
        found.turns and found.progress.baseline
    ):
        yield progress.draw(found.progress, found.about.measure)
    if any(_compares(effect) for effect in found.effects):
        mean = found.progress.baseline
        reference = mean.value if mean else None
        yield knobs.draw_effects(_by_importance(found), reference, found.about.measure)
    if found.importances.knobs:
        yield knobs.draw_importance(found.importances)
    if found.coverage.knobs and found.coverage.configs:
        yield coverage.draw_values(found.coverage)
    if found.turns:
        yield coverage.draw_stops(found.coverage.stops)
    if found.proposers:
        yield proposers.draw(found.proposers)
    if found.curves or found.baseline_curve:
        yield curves.draw_best(found.curves, found.baseline_curve)
    if found.spending and found.spending.bars:
        yield spending.draw(found.spending)
    yield from _long(found)


def _compares(effect: KnobEffect) -> bool:
    """Whether there are two values to be told apart."""
    return sum(value.score is not None for value in effect.values) > 1


def _by_importance(found: Findings) -> list[KnobEffect]:
    """The most important first; in the menu's order where that is not known."""
    order = {knob.name: place for place, knob in enumerate(found.importances.knobs)}
    return sorted(found.effects, key=lambda effect: order.get(effect.name, len(order)))


def _long(found: Findings) -> Iterator[Picture]:
    if found.long_runs is None:
        return
    runs = [
        (_name(run), _fate(run), run.curve) for run in found.long_runs.runs if run.curve is not None
    ]
    if runs:
        yield curves.draw_long(runs)
    if found.long_runs.test and found.long_runs.pairs:
        yield longruns.draw(found.long_runs.pairs, found.long_runs.test.steps)


def _fate(run: LongRun) -> curves.Fate:
    if run.verdict.outcome not in STANDING:
        return "failed"
    return "baseline" if run.purpose == "baseline" else "survived"


def _name(run: LongRun) -> str:
    who = "baseline" if run.purpose == "baseline" else f"rank {run.rank}"
    return f"{who}, {run.steps} steps: {run.verdict.outcome}"
