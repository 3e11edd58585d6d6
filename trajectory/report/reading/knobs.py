"""Knobs of a campaign: each config as a point."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence


@dataclass(frozen=True, slots=True)
class ReportedKnob:
    """A knob of the campaign, or any field in which an imported campaign's configs differ."""

    name: str
    domain: Domain
    default: Scalar | None
    """The menu's default, or the value of an imported campaign's baseline if it is known."""
    read: Callable[[AnyConfig], Scalar] | None = None
    """Reads the knob's value from a config; None if it is a field of the config."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One trained config, counted once however often it was trained."""

    values: Mapping[str, Scalar]
    """Values by knob."""
    mean: float | None
    """Mean score of its runs; None if none was measured."""


def samples(entries: Iterable[ConfigEvidence], knobs: Sequence[ReportedKnob]) -> list[Sample]:
    """Return a sample for each config that was trained."""
    return [
        Sample(knob_values(entry.config, knobs), entry.mean if entry.n else None)
        for entry in entries
        if entry.n or entry.failures
    ]


def knob_values(config: AnyConfig, knobs: Sequence[ReportedKnob]) -> dict[str, Scalar]:
    """Return the config's values of these knobs, with the menu's default for a field that is
    None."""
    found: dict[str, Scalar] = {}
    for knob in knobs:
        value: Scalar | None = config.value(knob.name) if knob.read is None else knob.read(config)
        if value is None:
            value = knob.default
        if value is not None:
            found[knob.name] = value
    return found


def places(samples: Iterable[Sample], knob: ReportedKnob) -> list[int | None]:
    """Return the cell of each config's value of a knob; None for a value outside the domain."""
    known: dict[tuple[type, Scalar | None], int | None] = {}
    found = []
    for sample in samples:
        value = sample.values.get(knob.name)
        key = value.__class__, value  # True equals 1, and is another value
        if key not in known:
            known[key] = knob.domain.place(value)
        found.append(known[key])
    return found
