"""Mean score of the configs that have each value of a knob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainer.spec import BPB, Measure
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
from trajectory.report.figures.figure import KNOBS, Figure
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
    score: Estimate | None
    """Mean over configs of each one's mean score; None if none was measured."""
    is_default: bool
    is_incumbent: bool


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """The values of one knob, with their scores."""

    name: str
    values: tuple[ValueEffect, ...]

    @property
    def compares(self) -> bool:
        """Whether at least two values have a score."""
        return sum(value.score is not None for value in self.values) > 1


@dataclass(frozen=True)
class KnobEffects(Figure):
    """One panel for each knob and one row for each value, all on the same scale.

    The values are not a random sample: a search returns to values that score well. So the figure
    shows association, not causation.
    """

    name = "knob-effects"
    section = KNOBS
    caption = (
        "Mean score over the configs that have a value, each config counted once by its own "
        "mean; bars are 95 % t intervals of that mean from the spread over configs, and the "
        "number on the right counts the configs. A bar that ends at the panel's edge is cut off. "
        "Green: the incumbent's value. A dot after a value (·): the baseline's. "
        "The dashed line is the baseline. A search lingers where it is good, so this shows "
        "what goes with a value, not what comes from it."
    )

    effects: tuple[KnobEffect, ...]
    """In the menu's order."""
    reference: float | None
    """The baseline's posterior mean, drawn as a line through every panel."""
    measure: str = "val_bpb"
    scoring: Measure = BPB

    @classmethod
    def of(cls, found: Findings) -> KnobEffects:
        effects = []
        for knob in found.knobs:
            cells, place_of = knob.domain.cells, knob.domain.place
            scores: list[list[float]] = [[] for _ in cells]
            for sample, place in zip(found.samples, found.places[knob.name], strict=True):
                if sample.mean is not None and place is not None:
                    scores[place].append(sample.mean)
            default, best = place_of(knob.default), place_of(found.incumbent.get(knob.name))
            values = [
                ValueEffect(
                    cell_text(cell), of_mean(own) if own else None, at == default, at == best
                )
                for at, (cell, own) in enumerate(zip(cells, scores, strict=True))
            ]
            effects.append(KnobEffect(knob.name, tuple(values)))
        return cls(
            effects=tuple(effects),
            reference=found.baseline.value if found.baseline else None,
            measure=found.about.measure,
            scoring=found.about.scoring,
        )

    @property
    def shows(self) -> bool:
        return any(effect.compares for effect in self.effects)

    @property
    def alt(self) -> str:
        return (
            f"Mean {self.measure} with its 95 % interval for each value of "
            f"{len(self.effects)} knobs."
        )

    def draw(self) -> Picture:
        effects = [_tried(effect) for effect in self.effects]
        rows = -(-len(effects) // COLUMNS)
        ordered = [effects[i * COLUMNS : (i + 1) * COLUMNS] for i in range(rows)]
        heights = [max(len(effect.values) for effect in row) + 2.4 for row in ordered]
        figure = sheet(ROW_IN * sum(heights) + 0.5)
        grid = figure.subplots(
            rows, COLUMNS, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights}
        )
        if (engine := figure.get_layout_engine()) is not None:
            engine.set(w_pad=0.12)  # type: ignore[call-arg]  # only constrained layout has it
        limits = _limits(effects, self.reference)
        beyond = ">" if self.scoring.direction == "minimise" else "<"
        for row, below, panels in zip(ordered, [*ordered[1:], []], grid, strict=True):
            for place, axes in enumerate(panels):
                if place >= len(row):
                    axes.set_visible(False)
                    continue
                _panel(axes, row[place], limits, max(len(effect.values) for effect in row), beyond)
                axes.tick_params(axis="x", labelbottom=place >= len(below))
                if self.reference is not None:
                    axes.axvline(
                        self.reference, color=BASE.light, linewidth=0.9, linestyle=(0, (4, 3))
                    )
        show_scores(grid[0][0].xaxis, self.scoring)  # all panels share this axis
        figure.supxlabel(
            f"mean {self.measure} over configs; bars: 95 % intervals", fontsize=9, color=MUTED.light
        )
        return Picture(self.name, self.alt, figure)


def _tried(effect: KnobEffect) -> KnobEffect:
    """Return the effect without the values at which nothing was measured; the coverage figure shows
    those."""
    configs = {place: value.score.n for place, value in enumerate(effect.values) if value.score}
    most = sorted(configs, key=lambda place: -configs[place])[:MOST_VALUES]
    name = effect.name
    if len(most) < len(configs):
        name = f"{cut(name, 10)}: {len(most)} of {len(configs)}"
    return replace(effect, name=name, values=tuple(effect.values[i] for i in sorted(most)))


def _panel(
    axes: Axes, effect: KnobEffect, limits: tuple[float, float], slots: int, beyond: str
) -> None:
    axes.set_title(cut(effect.name, NAME_CHARACTERS), pad=3)
    _intervals(axes, effect.values, limits, beyond)
    labels = [
        cut(value.label, MOST_CHARACTERS) + (" ·" if value.is_default else "")
        for value in effect.values
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
    scores = [(row, value.score) for row, value in enumerate(values) if value.score]
    inks = [KEEP if v.is_incumbent else INK if v.is_default else DISCARD for v in values if v.score]
    colours = [ink.light for ink in inks]
    barred = [place for place, (_, score) in enumerate(scores) if score.lo is not None]
    axes.hlines(
        [scores[place][0] for place in barred],
        [max(low, scores[place][1].lo or low) for place in barred],
        [min(high, scores[place][1].hi or high) for place in barred],
        colors=[colours[place] for place in barred],
        linewidth=1.6,
        alpha=0.75,
    )
    for marker, beyond in (("o", False), (arrow, True)):
        chosen = [place for place, (_, s) in enumerate(scores) if (s.value > high) == beyond]
        axes.scatter(
            [min(high, scores[place][1].value) for place in chosen],
            [scores[place][0] for place in chosen],
            s=18,
            c=[colours[place] for place in chosen],
            marker=marker,
            linewidths=0,
            zorder=3,
            clip_on=False,
        )
    for row, score in scores:
        axes.annotate(
            f"{score.n}",
            (1.02, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
            color=MUTED.light,
        )


def _limits(effects: Sequence[KnobEffect], reference: float | None) -> tuple[float, float]:
    """Return limits from the best mean to the worst mean that more than one config supports.

    A single bad config must not flatten the rest.
    """
    scores = [value.score for effect in effects for value in effect.values if value.score]
    firm = [score.value for score in scores if score.n > 1] or [score.value for score in scores]
    firm += [reference] if reference is not None else []
    if not firm:
        return 0.0, 1.0
    low, high = min(*firm, *(score.value for score in scores)), max(firm)
    margin = 0.15 * (high - low) or 0.01
    return low - margin, high + 2 * margin
