"""What the value of a knob goes with: the mean score over the configs that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoresearch.values import Scalar
from trajectory.report.reading.samples import ReportedKnob, Sample
from trajectory.report.statistics import Estimate, of_mean
from trajectory.report.words.wording import cell_text


@dataclass(frozen=True, slots=True)
class ValueEffect:
    """The configs whose knob has one value, or lies in one bin."""

    label: str
    score: Estimate | None
    """Mean over configs of each one's mean score; None where none was measured."""
    is_default: bool
    is_incumbent: bool


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """One knob."""

    name: str
    values: tuple[ValueEffect, ...]


def effects(
    samples: Sequence[Sample], knobs: Sequence[ReportedKnob], incumbent: Mapping[str, Scalar]
) -> tuple[KnobEffect, ...]:
    """The effect of every knob, over all measured configs.

    The values were not drawn at random: a search lingers where it is good, so what is seen goes
    with a value and need not come from it.

    :param incumbent: its values, as far as there is one.
    """
    return tuple(_effect(samples, knob, incumbent) for knob in knobs)


def _effect(
    samples: Sequence[Sample], knob: ReportedKnob, incumbent: Mapping[str, Scalar]
) -> KnobEffect:
    cells, place_of = knob.domain.cells, knob.domain.place
    scores: list[list[float]] = [[] for _ in cells]
    for sample in samples:
        place = place_of(sample.values.get(knob.name))
        if sample.mean is not None and place is not None:
            scores[place].append(sample.mean)
    default, best = place_of(knob.default), place_of(incumbent.get(knob.name))
    values = (
        ValueEffect(cell_text(cell), of_mean(own) if own else None, place == default, place == best)
        for place, (cell, own) in enumerate(zip(cells, scores, strict=True))
    )
    return KnobEffect(knob.name, tuple(values))
