"""Mean score of the configs that have each value of a knob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trajectory.report.canvas import (
    BASE,
    DISCARD,
    INK,
    KEEP,
    MUTED,
    Picture,
    bare,
    sheet,
    show_scores,
)
from trajectory.report.figures import KNOBS, Figure
from trajectory.report.findings import Findings
from trajectory.report.wording import cell_text, cut
from trajectory.statistics.intervals import Estimate, of_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
ROW_IN = 0.185
MOST_VALUES = 24
"""The most values in a panel; of more, those that most configs have."""
NAME_CHARACTERS = 24
"""The most characters of a knob's name over its panel, so that it leaves space for the next
panel's."""
MOST_CHARACTERS = 18
"""The most characters of a value's label."""


@dataclass(frozen=True, slots=True)
class ValueEffect:
    """The configs whose knob has one value, or lies in one bin."""

    label: str
    score: Estimate
    """Mean over configs of each one's mean score."""
    is_default: bool
    is_incumbent: bool


CAPTION = (
    "Mean score over the configs that have a value, each config counted once by its own mean; bars "
    "are 95 % t intervals of that mean from the spread over configs, and the number on the right "
    "counts the configs. A bar that ends at the panel's edge is cut off. Green: the incumbent's "
    "value. A dot after a value (·): the baseline's. The dashed line is the baseline. A search "
    "lingers where it is good, so this shows what goes with a value, not what comes from it."
)


def knob_effects(found: Findings) -> Figure:
    """Return one panel for each knob and one row for each value, all on the same scale.

    The values are not a random sample: a search returns to values that score well. So the figure
    shows association, not causation.
    """
    effects = {}
    for knob in found.knobs:
        cells, place_of = knob.domain.cells, knob.domain.place
        scores: list[list[float]] = [[] for _ in cells]
        for sample, place in zip(found.samples, found.places[knob.name], strict=True):
            if sample.mean is not None and place is not None:
                scores[place].append(sample.mean)
        default, best = place_of(knob.default), place_of(found.incumbent.get(knob.name))
        effects[knob.name] = [
            ValueEffect(cell_text(cell), of_mean(own), at == default, at == best)
            for at, (cell, own) in enumerate(zip(cells, scores, strict=True))
            if own  # the coverage figure shows the others
        ]
    compares = any(len(values) > 1 for values in effects.values())
    return Figure(
        "knob-effects",
        KNOBS,
        CAPTION,
        partial(_draw, effects, found) if compares else None,
        effects,
    )


def _draw(known: Mapping[str, Sequence[ValueEffect]], found: Findings) -> Picture:
    effects = [_most(name, values) for name, values in known.items()]
    scoring, measure = found.about.scoring, found.about.measure
    reference = found.baseline.value if found.baseline else None
    rows = -(-len(effects) // COLUMNS)
    ordered = [effects[i * COLUMNS : (i + 1) * COLUMNS] for i in range(rows)]
    slots = [max(len(values) for _, values in row) for row in ordered]
    heights = [count + 2.4 for count in slots]
    figure = sheet(ROW_IN * sum(heights) + 0.5)
    grid = figure.subplots(
        rows, COLUMNS, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    if (engine := figure.get_layout_engine()) is not None:
        engine.set(w_pad=0.12)  # type: ignore[call-arg]  # only constrained layout has it
    scores = [value.score for _, values in effects for value in values]
    means = [score.value for score in scores]
    # A single bad config must not flatten the rest: the worst mean is that of several.
    firm = [score.value for score in scores if score.n > 1] or [*means]
    firm += [reference] if reference is not None else []
    low, high = min(*firm, *means), max(firm)
    margin = 0.15 * (high - low) or 0.01
    limits = low - margin, high + 2 * margin
    beyond = ">" if scoring.direction == "minimise" else "<"
    for row, below, panels, most in zip(ordered, [*ordered[1:], []], grid, slots, strict=True):
        for place, axes in enumerate(panels):
            if place >= len(row):
                axes.set_visible(False)
                continue
            axes.set_title(row[place][0], pad=3)
            _panel(axes, row[place][1], limits, most, beyond)
            axes.tick_params(axis="x", labelbottom=place >= len(below))
            if reference is not None:
                axes.axvline(reference, color=BASE.light, linewidth=0.9, linestyle=(0, (4, 3)))
    show_scores(grid[0][0].xaxis, scoring)  # all panels share this axis
    figure.supxlabel(
        f"mean {measure} over configs; bars: 95 % intervals", fontsize=9, color=MUTED.light
    )
    alt = f"Mean {measure} with its 95 % interval for each value of {len(effects)} knobs."
    return Picture("knob-effects", alt, figure)


def _most(name: str, values: Sequence[ValueEffect]) -> tuple[str, list[ValueEffect]]:
    """Return a panel's title and its values, at most :data:`MOST_VALUES`."""
    order = sorted(range(len(values)), key=lambda place: -values[place].score.n)[:MOST_VALUES]
    if len(order) < len(values):
        name = f"{cut(name, 10)}: {len(order)} of {len(values)}"
    return cut(name, NAME_CHARACTERS), [values[place] for place in sorted(order)]


def _panel(
    axes: Axes,
    values: Sequence[ValueEffect],
    limits: tuple[float, float],
    slots: int,
    beyond: str,
) -> None:
    _intervals(axes, values, limits, beyond)
    labels = [
        cut(value.label, MOST_CHARACTERS) + (" ·" if value.is_default else "") for value in values
    ]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(slots - 0.4, -0.6)
    axes.set_xlim(*limits)
    axes.tick_params(axis="both", labelsize=7.5)
    axes.locator_params(axis="x", nbins=4)
    bare(axes)


def _intervals(
    axes: Axes, values: Sequence[ValueEffect], limits: tuple[float, float], arrow: str
) -> None:
    """Draw each row's mean as a dot and its interval as a bar; an arrow marks a mean beyond the
    scale."""
    low, high = limits
    scores = [value.score for value in values]
    inks = [KEEP if v.is_incumbent else INK if v.is_default else DISCARD for v in values]
    colours = [ink.light for ink in inks]
    barred = [row for row, score in enumerate(scores) if score.lo is not None]
    axes.hlines(
        barred,
        [max(low, scores[row].lo or low) for row in barred],
        [min(high, scores[row].hi or high) for row in barred],
        colors=[colours[row] for row in barred],
        linewidth=1.6,
        alpha=0.75,
    )
    for marker, beyond in (("o", False), (arrow, True)):
        chosen = [row for row, score in enumerate(scores) if (score.value > high) == beyond]
        axes.scatter(
            [min(high, scores[row].value) for row in chosen],
            chosen,
            s=18,
            c=[colours[row] for row in chosen],
            marker=marker,
            linewidths=0,
            zorder=3,
            clip_on=False,
        )
    for row, score in enumerate(scores):
        axes.annotate(
            f"{score.n}",
            (1.02, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
            color=MUTED.light,
        )
