"""What the value of a knob goes with: the mean score over the configs that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoresearch.values import Scalar
from trajectory.report.knob_domain import KnobDomain
from trajectory.report.samples import Sample
from trajectory.report.statistics import Estimate, of_mean


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
    samples: Sequence[Sample], domains: Sequence[KnobDomain], incumbent: Mapping[str, Scalar]
) -> tuple[KnobEffect, ...]:
    """Of every knob, over all measured configs.

    The values were not drawn at random: a search lingers where it is good, so what is seen goes
    with a value and need not come from it.

    :param incumbent: its values, as far as there is one.
    """
    return tuple(_effect(samples, domain, incumbent) for domain in domains)


def _effect(
    samples: Sequence[Sample], domain: KnobDomain, incumbent: Mapping[str, Scalar]
) -> KnobEffect:
    scores: list[list[float]] = [[] for _ in domain.labels]
    for sample in samples:
        place = domain.index(sample.values.get(domain.name))
        if sample.mean is not None and place is not None:
            scores[place].append(sample.mean)
    default, best = domain.index(domain.default), domain.index(incumbent.get(domain.name))
    values = (
        ValueEffect(label, of_mean(own) if own else None, place == default, place == best)
        for place, (label, own) in enumerate(zip(domain.labels, scores, strict=True))
    )
    return KnobEffect(domain.name, tuple(values))
