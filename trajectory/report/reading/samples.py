"""Configs as points: the value of every knob, and the score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence


@dataclass(frozen=True, slots=True)
class ReportedKnob:
    """A knob of the campaign, or whatever another tool's configs differ in."""

    name: str
    domain: Domain
    default: Scalar | None
    """The menu's, or the value of another tool's baseline where that is known."""
    read: Callable[[AnyConfig], Scalar] | None = None
    """How a config is asked for it; None: it is a field of the config."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One config that was trained, counted once however often."""

    values: Mapping[str, Scalar]
    """By knob."""
    mean: float | None
    """The mean of its runs' scores; None where none of them was measured."""


def samples(entries: Iterable[ConfigEvidence], knobs: Sequence[ReportedKnob]) -> list[Sample]:
    """The configs that were trained, each as a sample."""
    return [
        Sample(knob_values(entry.config, knobs), entry.mean if entry.n else None)
        for entry in entries
        if entry.n or entry.failures
    ]


def knob_values(config: AnyConfig, knobs: Sequence[ReportedKnob]) -> dict[str, Scalar]:
    """The config's values of these knobs; the menu's default for a field left at None."""
    found: dict[str, Scalar] = {}
    for knob in knobs:
        value: Scalar | None = config.value(knob.name) if knob.read is None else knob.read(config)
        if value is None:
            value = knob.default
        if value is not None:
            found[knob.name] = value
    return found
