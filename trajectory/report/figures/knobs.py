"""What the knobs do: the mean at each value, and how much each knob decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trajectory.report.drawing.canvas import (
    BASE,
    DISCARD,
    INK,
    KEEP,
    MUTED,
    Ink,
    Picture,
    bare,
    sheet,
)
from trajectory.report.effects import KnobEffect, ValueEffect
from trajectory.report.importance import METHOD, Importances
from trajectory.report.words.text import cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
ROW_IN = 0.185
MOST_VALUES = 24
"""In a panel; of more, those that most configs have."""
NAME_CHARACTERS = 24
"""Of a knob's name over its panel, beside which stands another."""
MOST_CHARACTERS = 18
"""Of a value's label."""


def draw_effects(effects: Sequence[KnobEffect], reference: float | None, measure: str) -> Picture:
    """A panel a knob, a row a value, all on one scale.

    :param reference: the baseline's mean, as a line through every panel.
    """
    effects = [_tried(effect) for effect in effects]
    rows = -(-len(effects) // COLUMNS)
    ordered = [effects[i * COLUMNS : (i + 1) * COLUMNS] for i in range(rows)]
    heights = [max(len(effect.values) for effect in row) + 2.4 for row in ordered]
    figure = sheet(ROW_IN * sum(heights) + 0.5)
    grid = figure.subplots(
        rows, COLUMNS, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    if (engine := figure.get_layout_engine()) is not None:
        engine.set(w_pad=0.12)  # type: ignore[call-arg]  # of constrained layout
    limits = _limits(effects, reference)
    for row, below, panels in zip(ordered, [*ordered[1:], []], grid, strict=True):
        for place, axes in enumerate(panels):
            if place >= len(row):
                axes.set_visible(False)
                continue
            _panel(axes, row[place], limits, max(len(effect.values) for effect in row))
            axes.tick_params(axis="x", labelbottom=place >= len(below))
            if reference is not None:
                axes.axvline(reference, color=BASE.light, linewidth=0.9, linestyle=(0, (4, 3)))
    figure.supxlabel(
        f"mean {measure} over configs; bars: 95 % intervals", fontsize=9, color=MUTED.light
    )
    return Picture("knob-effects", _effect_words(effects, measure), figure)


def _tried(effect: KnobEffect) -> KnobEffect:
    """Without the values nothing was measured at: the coverage shows those."""
    configs = {place: value.score.n for place, value in enumerate(effect.values) if value.score}
    most = sorted(configs, key=lambda place: -configs[place])[:MOST_VALUES]
    name = effect.name
    if len(most) < len(configs):
        name = f"{cut(name, 10)}: {len(most)} of {len(configs)}"
    return replace(effect, name=name, values=tuple(effect.values[i] for i in sorted(most)))


def _panel(axes: Axes, effect: KnobEffect, limits: tuple[float, float], slots: int) -> None:
    axes.set_title(cut(effect.name, NAME_CHARACTERS), pad=3)
    _intervals(axes, effect.values, limits)
    axes.set_yticks(range(len(effect.values)), [_label(value) for value in effect.values])
    axes.set_ylim(slots - 0.4, -0.6)
    axes.set_xlim(*limits)
    axes.tick_params(axis="both", labelsize=7.5)
    axes.locator_params(axis="x", nbins=4)
    bare(axes)


def _intervals(axes: Axes, values: Sequence[ValueEffect], limits: tuple[float, float]) -> None:
    """Dots with bars, a row a value; what lies beyond the scale points there."""
    low, high = limits
    scores = [(row, value.score) for row, value in enumerate(values) if value.score]
    colours = [_ink(value).light for value in values if value.score]
    barred = [place for place, (_, score) in enumerate(scores) if score.lo is not None]
    axes.hlines(
        [scores[place][0] for place in barred],
        [max(low, scores[place][1].lo or low) for place in barred],
        [min(high, scores[place][1].hi or high) for place in barred],
        colors=[colours[place] for place in barred],
        linewidth=1.6,
        alpha=0.75,
    )
    for marker, beyond in (("o", False), (">", True)):
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


def _ink(value: ValueEffect) -> Ink:
    return KEEP if value.is_incumbent else INK if value.is_default else DISCARD


def _label(value: ValueEffect) -> str:
    text = cut(value.label, MOST_CHARACTERS)
    return f"{text} ·" if value.is_default else text


def _limits(effects: Sequence[KnobEffect], reference: float | None) -> tuple[float, float]:
    """From the best mean to the worst that more than one config stands behind: one config that
    went wrong must not flatten the rest."""
    scores = [value.score for effect in effects for value in effect.values if value.score]
    firm = [score.value for score in scores if score.n > 1] or [score.value for score in scores]
    firm += [reference] if reference is not None else []
    if not firm:
        return 0.0, 1.0
    low, high = min(*firm, *(score.value for score in scores)), max(firm)
    margin = 0.15 * (high - low) or 0.01
    return low - margin, high + 2 * margin


def _effect_words(effects: Sequence[KnobEffect], measure: str) -> str:
    return f"Mean {measure} with its 95 % interval for each value of {len(effects)} knobs."


def draw_importance(found: Importances) -> Picture:
    """Shares, and what shuffled scores gave."""
    knobs = found.knobs
    figure = sheet(0.23 * len(knobs) + 0.9)
    axes = figure.subplots()
    places = range(len(knobs))
    axes.barh(
        places,
        [knob.share for knob in knobs],
        height=0.62,
        color=[(KEEP if knob.stands_out else DISCARD).light for knob in knobs],
    )
    axes.scatter(
        [knob.by_chance for knob in knobs],
        places,
        marker="|",
        s=90,
        linewidths=1.6,
        color=INK.light,
        zorder=4,
        label="the most that shuffled scores gave it",
    )
    axes.set_yticks(places, [cut(knob.name, NAME_CHARACTERS) for knob in knobs])
    axes.set_ylim(len(knobs) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"share of importance, {METHOD}, {found.n} configs")
    figure.legend(loc="outside upper left")
    bare(axes)
    firm = [knob.name for knob in knobs if knob.stands_out]
    words = f"Importance of {len(knobs)} knobs; above chance: {', '.join(firm) or 'none'}."
    return Picture("knob-importance", words, figure)
