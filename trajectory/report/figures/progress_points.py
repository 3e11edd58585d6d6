"""Points of the score-by-iteration figure: dots, bars, a cloud, and marks at the edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainer.schema import Measure
from trajectory.report.canvas import MUTED, OUTCOME_INK
from trajectory.report.iterations import Outcome
from trajectory.statistics.intervals import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LINKED = 600
"""The most iterations drawn with links, and with error bars for discarded ones. More are drawn as
one path, because bars would cover each other."""


@dataclass(frozen=True, slots=True)
class Point:
    """One iteration's candidate."""

    iter: int
    outcome: Outcome
    score: Estimate | None
    """Mean objective over its seeds; None if nothing was measured."""


def draw_scores(axes: Axes, all_points: Sequence[Point], scoring: Measure) -> dict[str, str]:
    """Draw the measured points by outcome, and return the titles of linked points by link."""
    titles: dict[str, str] = {}
    outcomes: tuple[Outcome, ...] = ("discard", "keep")
    few = len(all_points) <= MAX_LINKED
    for outcome in outcomes:
        points = [p for p in all_points if p.outcome == outcome and p.score]
        if not points:
            continue
        keep = outcome == "keep"
        colour = OUTCOME_INK[outcome].light
        if few or keep:
            ends = [
                [(p.iter, p.score.lo), (p.iter, p.score.hi)]
                for p in points
                if p.score and p.score.lo is not None
            ]
            if ends:
                bars = np.array(ends, dtype=float)
                _strokes(axes, bars, colour, 0.9, 0.9 if keep else 0.55)
        name = f"{'kept' if keep else 'discarded'} ({len(points):,})"
        if few or (keep and len(points) <= MAX_LINKED):
            titles |= _linked(axes, points, colour, name, scoring, keep=keep)
        else:
            _cloud(axes, points, colour, name)
    return titles


def _linked(
    axes: Axes, points: Sequence[Point], colour: str, name: str, scoring: Measure, *, keep: bool
) -> dict[str, str]:
    dots = axes.scatter(
        [p.iter for p in points],
        [p.score.value for p in points if p.score],
        s=26 if keep else 13,
        color=colour,
        linewidths=0,
        zorder=4 if keep else 3,
        label=name,
    )
    dots.set_urls([f"#i{p.iter}" for p in points])
    titles = {}
    for p in points:
        if p.score:
            half = "" if p.score.hi is None else f" ± {scoring.size(p.score.hi - p.score.value)}"
            value = f"{scoring.text(p.score.value)}{half} (n={p.score.n})"
            titles[f"#i{p.iter}"] = f"iteration {p.iter}, {p.outcome}: {value}"
    return titles


def _cloud(axes: Axes, points: Sequence[Point], colour: str, name: str) -> None:
    """Draw dots as zero-length strokes with round ends, which take a tenth of the markup, and of
    dots that would cover each other one."""
    at = np.array([(p.iter, p.score.value) for p in points if p.score], dtype=float)
    if len(at) > MAX_LINKED:
        low, high = axes.get_ylim()
        pixel = np.array([max(1.0, np.ptp(at[:, 0])), high - low]) / axes.bbox.size
        at = at[(at[:, 1] >= low) & (at[:, 1] <= high)]
        cells = np.floor(at / pixel)  # a dot is three wide
        at = at[np.sort(np.unique(cells, axis=0, return_index=True)[1])]
    _strokes(axes, np.stack([at, at + np.array([1e-6, 0.0])], axis=1), colour, 2.2, 0.6)
    axes.scatter([], [], s=13, color=colour, linewidths=0, label=name)


def _strokes(
    axes: Axes,
    ends: NDArray[np.float64],
    colour: str,
    width: float,
    alpha: float,
) -> None:
    """Draw straight strokes [N, 2, 2] as one path."""
    from matplotlib.patches import PathPatch  # noqa: PLC0415 (slow to load)
    from matplotlib.path import Path as Outline  # noqa: PLC0415

    codes = np.tile([Outline.MOVETO, Outline.LINETO], len(ends))
    outline = Outline(ends.reshape(-1, 2), codes)
    axes.add_patch(
        PathPatch(
            outline,
            fill=False,
            edgecolor=colour,
            linewidth=width,
            alpha=alpha,
            capstyle="round",
            zorder=2,
        )
    )


def draw_off_scale(axes: Axes, points: Sequence[Point], high: float, scoring: Measure) -> None:
    """Mark, along the edge, the points whose score is worse than ``high``."""
    up = scoring.direction == "minimise"
    above = [p.iter for p in points if p.score and p.score.value > high]
    if above:
        marks = _apart(axes, above, points)
        axes.plot(
            marks,
            [0.965 if up else 0.075] * len(marks),
            linestyle="none",
            marker="^" if up else "v",
            markersize=4,
            color=MUTED.light,
            transform=axes.get_xaxis_transform(),
            markeredgewidth=0,
            label=f"{'above' if up else 'below'} the scale ({len(above):,})",
        )


def draw_unmeasured(axes: Axes, points: Sequence[Point]) -> None:
    """Mark points without a score along the bottom, so that the picture shows every iteration."""
    names: dict[Outcome, str] = {
        "failed": "failed",
        "pruned": "pruned",
        "refused": "refused",
    }
    for row, (outcome, name) in enumerate(names.items()):
        at = [p.iter for p in points if p.outcome == outcome]
        if at:
            marks = _apart(axes, at, points)
            axes.plot(
                marks,
                [0.012 + 0.022 * row] * len(marks),
                linestyle="none",
                marker="|",
                markersize=5,
                color=OUTCOME_INK[outcome].light,
                clip_on=False,
                transform=axes.get_xaxis_transform(),
                label=f"{name} ({len(at):,})",
            )


def _apart(axes: Axes, at: Sequence[int], points: Sequence[Point]) -> list[int]:
    """Return the iterations whose marks do not cover each other, the first of each pixel."""
    pixel = max(1.0, (points[-1].iter - points[0].iter) / axes.bbox.width)
    return list({math.floor(iteration / pixel): iteration for iteration in reversed(at)}.values())
