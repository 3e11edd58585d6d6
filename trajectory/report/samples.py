"""Configs as points: the value of every knob, and the score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoresearch.values import Scalar
from trainer.spec import Config
from trajectory.evidence import ConfigEvidence
from trajectory.report.knob_domain import KnobDomain


@dataclass(frozen=True, slots=True)
class Sample:
    """One config that was trained, counted once however often."""

    values: Mapping[str, Scalar]
    """By knob."""
    mean: float | None
    """Of its runs' scores; None where none of them was measured."""


def samples(entries: Iterable[ConfigEvidence], domains: Sequence[KnobDomain]) -> list[Sample]:
    """Of the configs that were trained."""
    return [
        Sample(knob_values(entry.config, domains), entry.mean if entry.n else None)
        for entry in entries
        if entry.n or entry.failures
    ]


def knob_values(config: Config, domains: Sequence[KnobDomain]) -> dict[str, Scalar]:
    """The config's values of these knobs; the menu's default for a field left at None."""
    found: dict[str, Scalar] = {}
    for domain in domains:
        value: Scalar | None = getattr(config, domain.name)
        if value is None:
            value = domain.default
        if value is not None:
            found[domain.name] = value
    return found
