"""Where the search has been, and what stopped it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trajectory.report.coverage import Coverage, KnobCoverage, Stops
from trajectory.report.drawing.canvas import (
    FAILED,
    INK,
    KEEP,
    MUTED,
    REFUSED,
    RULE,
    Ink,
    Picture,
    bare,
    sheet,
)
from trajectory.report.words.text import cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT_CELL, FULL_CELL = 0.10, 0.62
"""Opacity of a cell with one config and of the fullest."""
NAME_CHARACTERS = 20
"""Of a knob's name: a longer one would take the cells' room."""
CELLS = 8
"""Side by side; a knob with more values goes on below."""
LINE_CHARACTERS = 120
"""That fit beside each other across all cells; an eighth more in small print."""


def draw_values(found: Coverage) -> Picture:
    """A row a knob, a cell a value or bin, with how many configs were trained there."""
    columns = min(CELLS, max(len(knob.labels) for knob in found.knobs))
    most = max(max(knob.configs) for knob in found.knobs) or 1
    lines = [line for knob in found.knobs for line in _lines(knob)]
    figure = sheet(0.40 * len(lines) + 0.3)
    axes = figure.subplots()
    for row, (_, cells) in enumerate(lines):
        for column, (text, count) in enumerate(cells):
            _cell(axes, (column, row), text, count, count / most, LINE_CHARACTERS // columns)
    axes.set_yticks([row + 0.5 for row in range(len(lines))], [name for name, _ in lines])
    axes.tick_params(axis="y", labelcolor=INK.light)
    axes.set_xticks([])
    axes.set_xlim(0, columns)
    axes.set_ylim(len(lines), 0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return Picture("coverage", _words(found.knobs), figure)


def _lines(knob: KnobCoverage) -> Iterator[tuple[str, Sequence[tuple[str, int]]]]:
    """Each with its name, which only the first has, and its cells' values and counts."""
    cells = list(zip(knob.labels, knob.configs, strict=True))
    for start in range(0, len(cells), CELLS):
        yield "" if start else _name(knob), cells[start : start + CELLS]


def _cell(axes: Axes, at: tuple[int, int], text: str, count: int, share: float, room: int) -> None:
    """:param room: characters that fit into a cell."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 (slow to load)

    column, row = at
    place = (column + 0.03, row + 0.06)
    if count:
        shade = LIGHT_CELL + (FULL_CELL - LIGHT_CELL) * math.sqrt(share)
        axes.add_patch(Rectangle(place, 0.94, 0.88, color=KEEP.light, alpha=shade, linewidth=0))
    else:
        axes.add_patch(Rectangle(place, 0.94, 0.88, fill=False, edgecolor=RULE.light, linewidth=1))
    axes.text(
        column + 0.5,
        row + 0.36,
        cut(text, room * 9 // 8),
        ha="center",
        va="center",
        fontsize=7 if len(text) <= room else 5.25,
        color=INK.light if count else MUTED.light,
    )
    axes.text(
        column + 0.5,
        row + 0.70,
        f"{count}" if count else "–",
        ha="center",
        va="center",
        fontsize=7,
        color=INK.light if count else MUTED.light,
    )


def _name(knob: KnobCoverage) -> str:
    return f"{cut(knob.name, NAME_CHARACTERS)}  {knob.touched}/{len(knob.labels)}"


def _words(knobs: Sequence[KnobCoverage]) -> str:
    untouched = [knob.name for knob in knobs if not knob.proposals]
    return (
        f"Configs trained at each value of {len(knobs)} knobs; "
        f"never proposed: {', '.join(untouched) or 'none'}."
    )


def draw_stops(found: Stops) -> Picture:
    """Refusals by rail, failures by status."""
    figure = sheet(0.2 * max(len(found.refusals), len(found.failures)) + 0.8)
    left, right = figure.subplots(1, 2)
    _counts(left, "proposals refused, by rail", found.refusals, REFUSED)
    _counts(right, f"trials without a measurement, of {found.trials}", found.failures, FAILED)
    words = (
        f"{sum(found.refusals.values())} refusals and {sum(found.failures.values())} trials that "
        "ended without a measurement."
    )
    return Picture("refusals-and-failures", words, figure)


def _counts(axes: Axes, title: str, counts: Mapping[str, int], ink: Ink) -> None:
    axes.set_title(title)
    places = range(len(counts))
    axes.barh(places, list(counts.values()), height=0.62, color=ink.light)
    for place, count in enumerate(counts.values()):
        axes.annotate(
            f"{count}",
            (count, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK.light if count else MUTED.light,
        )
    axes.set_yticks(places, list(counts))
    axes.set_ylim(len(counts) - 0.4, -0.6)
    axes.set_xlim(0, max(1, *counts.values()) * 1.12)
    axes.set_xticks([])
    bare(axes)
