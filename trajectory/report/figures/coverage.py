"""Coverage of the knobs' values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trajectory.report.canvas import (
    INK,
    KEEP,
    MUTED,
    RULE,
    Picture,
    sheet,
)
from trajectory.report.figures import COVERED, Figure
from trajectory.report.findings import Findings
from trajectory.report.wording import cell_text, cut
from trajectory.statistics.intervals import Estimate, of_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT_CELL, FULL_CELL = 0.10, 0.62
"""Opacity of a cell with one config, and of the fullest cell."""
NAME_CHARACTERS = 20
"""The most characters of a knob's name; a longer one would take the cells' space."""
CELLS = 8
"""Cells side by side; a knob with more values continues on the next line."""
LINE_CHARACTERS = 120
"""Characters that fit side by side across all cells; in small print, an eighth more."""


@dataclass(frozen=True, slots=True)
class KnobCoverage:
    """Configs and proposals by value of one knob."""

    name: str
    labels: tuple[str, ...]
    """Texts of its values, or of the bins of its domain."""
    configs: tuple[int, ...]
    """Configs trained with each value, the baseline included."""
    proposals: int
    """Proposals that set it."""
    kept: int
    """Those of the proposals that were kept."""
    delta: Estimate | None
    """Mean difference to the reference, over the measured proposals."""

    @property
    def touched(self) -> int:
        """Number of values or bins with at least one config."""
        return sum(count > 0 for count in self.configs)


CAPTION = (
    "Configs trained at each value, or in each sixth of a knob's range on its own scale; the "
    "number under a value counts them. Empty cells were never tried. Right of a knob's name: "
    "values tried, of all."
)


def coverage(found: Findings) -> Figure:
    """Return one row for each knob and one cell for each value or bin, with its number of trained
    configs."""
    knobs = []
    for knob in found.knobs:
        cells = knob.domain.cells
        counts = Counter(found.places[knob.name])
        setting = [one for one in found.iterations if knob.name in one.changed]
        deltas = [iteration.delta for iteration in setting if iteration.delta is not None]
        knobs.append(
            KnobCoverage(
                name=knob.name,
                labels=tuple(map(cell_text, cells)),
                configs=tuple(counts[place] for place in range(len(cells))),
                proposals=len(setting),
                kept=sum(iteration.outcome == "keep" for iteration in setting),
                delta=of_mean(deltas) if deltas else None,
            )
        )
    draw = partial(_draw, knobs) if knobs and found.samples else None
    return Figure("coverage", COVERED, CAPTION, draw, knobs)


def _draw(knobs: Sequence[KnobCoverage]) -> Picture:
    columns = min(CELLS, max(len(knob.labels) for knob in knobs))
    most = max(max(knob.configs) for knob in knobs) or 1
    lines = []
    for knob in knobs:
        name = f"{cut(knob.name, NAME_CHARACTERS)}  {knob.touched}/{len(knob.labels)}"
        knob_cells = list(zip(knob.labels, knob.configs, strict=True))
        for start in range(0, len(knob_cells), CELLS):
            lines.append(("" if start else name, knob_cells[start : start + CELLS]))
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
    untouched = ", ".join(knob.name for knob in knobs if not knob.proposals)
    alt = (
        f"Configs trained at each value of {len(knobs)} knobs; "
        f"never proposed: {untouched or 'none'}."
    )
    return Picture("coverage", alt, figure)


def _cell(axes: Axes, at: tuple[int, int], text: str, count: int, share: float, room: int) -> None:
    """Draw one cell.

    :param room: characters that fit into a cell.
    """
    from matplotlib.patches import Rectangle  # noqa: PLC0415 (slow to load)

    column, row = at
    ink = (INK if count else MUTED).light
    style: dict[str, Any] = {"fill": False, "edgecolor": RULE.light, "linewidth": 1}
    if count:
        shade = LIGHT_CELL + (FULL_CELL - LIGHT_CELL) * math.sqrt(share)
        style = {"color": KEEP.light, "alpha": shade, "linewidth": 0}
    # Cells lie within the axes, so the layout need not measure them.
    place = (column + 0.03, row + 0.06)
    axes.add_patch(Rectangle(place, 0.94, 0.88, **style, in_layout=False))
    size = 7 if len(text) <= room else 5.25
    lines = ((0.36, cut(text, room * 9 // 8), size), (0.70, f"{count}" if count else "–", 7))
    for below, said, fontsize in lines:
        axes.text(
            column + 0.5,
            row + below,
            said,
            ha="center",
            va="center",
            fontsize=fontsize,
            color=ink,
            in_layout=False,
        )
