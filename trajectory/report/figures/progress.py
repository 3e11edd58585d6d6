"""Score by iteration over the whole search, with the incumbent and the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from trainer.schema import Measure
from trajectory.report.canvas import (
    BASE,
    INK,
    Picture,
    bare,
    score_limits,
    sheet,
    show_scores,
)
from trajectory.report.figures import SEARCH, Figure
from trajectory.report.figures.progress_points import (
    MAX_LINKED,
    Point,
    draw_off_scale,
    draw_scores,
    draw_unmeasured,
)
from trajectory.report.findings import Findings
from trajectory.statistics.intervals import Estimate, RunNoise, of_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_KEPT = 30
"""The most kept iterations in their list, the latest ones; the table of all iterations has all of
them."""
MAX_COLUMNS = 5
"""The most columns of the legend: six with large counts do not fit."""


def progress(found: Findings) -> Figure:
    """Return scores with their intervals, the incumbents as steps, and the baseline as a band."""
    points = points_of(found)
    shows = any(point.score for point in points) or bool(points and found.baseline)
    values = (points, found.about.scoring, found.baseline, found.noise, believed_steps(found))
    draw = partial(progress_picture, *values) if shows else None
    dots = "Each dot is a candidate's mean over its seeds"
    bars = ". There are no bars, because no config ran twice and the noise is unknown."
    if found.noise is not None:
        bars = (
            "; its bar is the 95 % interval of that mean, from the noise of all configs "
            "(mean ± t·σ/√n). The band is the 95 % interval of the baseline's mean."
        )
    caption = (
        f"{dots}{bars} The steps show each incumbent's estimated score now, from all its runs. The "
        "score with which it was kept is better, because it was chosen partly by luck. Marks at "
        "the bottom are refused proposals and trials without a score."
    )
    if found.noise is not None and len(points) > MAX_LINKED:
        caption += " With so many iterations, discarded ones are drawn without their bars."
    return Figure("progress", SEARCH, caption, draw, found.kept[-MOST_KEPT:])


def points_of(found: Findings) -> list[Point]:
    """Return every iteration's score with the interval of its runs."""
    points = []
    for one in found.iterations:
        score = None if one.mean is None else of_runs(one.mean, one.runs, found.noise)
        points.append(Point(one.iter, one.outcome, score))
    return points


def believed_steps(found: Findings) -> list[tuple[int, float]]:
    """Return each incumbent's first iteration and its posterior mean now, from all its runs.

    The score that it was kept with is too good by luck, the more so the more candidates there were
    to choose from.
    """
    return [
        (reign.iter, believed)
        for reign in found.reigns
        if (believed := found.believed.get(reign.config_hash)) is not None
    ]


def progress_picture(
    points: Sequence[Point],
    scoring: Measure,
    baseline: Estimate | None,
    noise: RunNoise | None,
    steps: Sequence[tuple[int, float]],
) -> Picture:
    """Draw every iteration's score.

    :param steps: each incumbent's first iteration and its posterior mean.
    """
    figure = sheet(4.3)
    axes = figure.subplots()
    low, high = score_limits(
        [point.score for point in points if point.score],
        baseline,
        [believed for _, believed in steps],
        noise,
    )
    axes.set_ylim(low, high)
    if baseline:
        _baseline(axes, baseline)
    titles = draw_scores(axes, points, scoring)
    last = max(point.iter for point in points)
    if steps:
        axes.stairs(
            [believed for _, believed in steps],
            [*(float(first) for first, _ in steps), float(max(last, steps[-1][0]))],
            baseline=None,
            color=INK.light,
            linewidth=1.6,
            zorder=5,
            label="incumbent, estimate now",
        )
    show_scores(axes.yaxis, scoring)
    draw_off_scale(axes, points, high, scoring)
    draw_unmeasured(axes, points)
    bare(axes, grid="y", steps="iteration")
    axes.set_ylabel(f"{scoring.name}, {scoring.better}")
    pad = 0.05 + 0.03 * last
    axes.set_xlim(-pad, last + pad)
    entries = len(axes.get_legend_handles_labels()[1])
    figure.legend(
        loc="outside upper left",
        fontsize=8.5,
        ncols=math.ceil(entries / math.ceil(entries / MAX_COLUMNS)),
        handletextpad=0.4,
        columnspacing=1.4,
    )
    return Picture("progress", _alternative(points, scoring, baseline, steps), figure, titles)


def _alternative(
    points: Sequence[Point],
    scoring: Measure,
    baseline: Estimate | None,
    steps: Sequence[tuple[int, float]],
) -> str:
    kept = sum(point.outcome == "keep" for point in points)
    text = f"{scoring.name} of {len(points)} iterations, {kept} of them kept."
    if baseline:
        text += f" The baseline's estimated score is {scoring.text(baseline.value)}."
    if steps:
        text += f" The incumbent's estimated score is now {scoring.text(steps[-1][1])}."
    return text


def _baseline(axes: Axes, baseline: Estimate) -> None:
    axes.axhline(
        baseline.value, color=BASE.light, linewidth=1.1, linestyle=(0, (5, 3)), label="baseline"
    )
    if baseline.lo is not None and baseline.hi is not None:
        axes.axhspan(
            baseline.lo,
            baseline.hi,
            color=BASE.light,
            alpha=0.12,
            linewidth=0,
            label="95 % interval of a mean",
        )
