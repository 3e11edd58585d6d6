"""Where the search has been."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajectory.report.drawing.canvas import INK, KEEP, MUTED, RULE, Picture, sheet
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.sections import COVERED
from trajectory.report.findings import Findings
from trajectory.report.reading.samples import ReportedKnob, Sample
from trajectory.report.reading.turns import Turn
from trajectory.report.statistics import Estimate, of_mean
from trajectory.report.words.text import cut
from trajectory.report.words.wording import cell_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT_CELL, FULL_CELL = 0.10, 0.62
"""Opacity of a cell with one config and of the fullest."""
NAME_CHARACTERS = 20
"""The longest name of a knob: a longer one would take the cells' room."""
CELLS = 8
"""Side by side; a knob with more values goes on below."""
LINE_CHARACTERS = 120
"""That fit beside each other across all cells; an eighth more in small print."""


@dataclass(frozen=True, slots=True)
class KnobCoverage:
    """How one knob was turned."""

    name: str
    labels: tuple[str, ...]
    """The texts of its values, or of the bins of its domain."""
    configs: tuple[int, ...]
    """Trained with each, the baseline included."""
    proposals: int
    """That set it."""
    kept: int
    """Those of the proposals that were kept."""
    delta: Estimate | None
    """Mean difference to the reference of the measured ones."""

    @property
    def touched(self) -> int:
        """Values or bins with a config."""
        return sum(count > 0 for count in self.configs)


@dataclass(frozen=True)
class Coverage(Figure):
    """A row a knob, a cell a value or bin, with how many configs were trained there."""

    name = "coverage"
    section = COVERED
    caption = (
        "Configs trained at each value, or in each sixth of a knob's range on its own scale; "
        "the number under the value is how many. Empty cells were never tried. Right of a "
        "knob's name: values touched of all."
    )

    knobs: tuple[KnobCoverage, ...]
    configs: int
    """Trained, the baseline included."""

    @classmethod
    def of(cls, found: Findings) -> Coverage:
        knobs = (_covered(found.turns, found.samples, knob) for knob in found.knobs)
        return cls(tuple(knobs), len(found.samples))

    @property
    def shows(self) -> bool:
        return bool(self.knobs and self.configs)

    @property
    def alt(self) -> str:
        untouched = [knob.name for knob in self.knobs if not knob.proposals]
        return (
            f"Configs trained at each value of {len(self.knobs)} knobs; "
            f"never proposed: {', '.join(untouched) or 'none'}."
        )

    def draw(self) -> Picture:
        columns = min(CELLS, max(len(knob.labels) for knob in self.knobs))
        most = max(max(knob.configs) for knob in self.knobs) or 1
        lines = [line for knob in self.knobs for line in _lines(knob)]
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
        return Picture(self.name, self.alt, figure)


def _covered(turns: Sequence[Turn], samples: Sequence[Sample], knob: ReportedKnob) -> KnobCoverage:
    cells = knob.domain.cells
    counts = Counter(knob.domain.place(sample.values.get(knob.name)) for sample in samples)
    setting = [turn for turn in turns if knob.name in turn.changed]
    deltas = [turn.delta for turn in setting if turn.delta is not None]
    return KnobCoverage(
        name=knob.name,
        labels=tuple(map(cell_text, cells)),
        configs=tuple(counts[place] for place in range(len(cells))),
        proposals=len(setting),
        kept=sum(turn.outcome == "keep" for turn in setting),
        delta=of_mean(deltas) if deltas else None,
    )


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
