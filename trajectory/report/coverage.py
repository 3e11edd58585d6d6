"""What the search looked at, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajectory.report.knob_domain import KnobDomain
from trajectory.report.samples import Sample
from trajectory.report.statistics import Estimate, of_mean
from trajectory.report.turns import Turn


@dataclass(frozen=True, slots=True)
class KnobCoverage:
    """How one knob was turned."""

    name: str
    labels: tuple[str, ...]
    """Of its values, or of the bins of its domain."""
    configs: tuple[int, ...]
    """Trained with each, the baseline included."""
    proposals: int
    """That set it."""
    kept: int
    """Of these, kept."""
    delta: Estimate | None
    """Mean difference to the reference of the measured ones."""

    @property
    def touched(self) -> int:
        """Values or bins with a config."""
        return sum(count > 0 for count in self.configs)


@dataclass(frozen=True, slots=True)
class Stops:
    """Proposals and trials that led nowhere."""

    repeats: int
    """Proposals of a config that had been trained: refused as no news, or trained again."""
    refusals: Mapping[str, int]
    """By rail: of proposals, and of single replies of a language model."""
    failures: Mapping[str, int]
    """By status, of all trials."""
    trials: int
    """Of the baseline and of iterations."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far the search has gone."""

    knobs: tuple[KnobCoverage, ...]
    configs: int
    """Trained, the baseline included."""
    stops: Stops


def coverage(
    turns: Sequence[Turn], samples: Sequence[Sample], domains: Sequence[KnobDomain], stops: Stops
) -> Coverage:
    """Of the campaign so far."""
    knobs = tuple(_knob(turns, samples, domain) for domain in domains)
    return Coverage(knobs, len(samples), stops)


def _knob(turns: Sequence[Turn], samples: Sequence[Sample], domain: KnobDomain) -> KnobCoverage:
    counts = Counter(domain.index(sample.values.get(domain.name)) for sample in samples)
    setting = [turn for turn in turns if domain.name in turn.changed]
    deltas = [turn.delta for turn in setting if turn.delta is not None]
    return KnobCoverage(
        name=domain.name,
        labels=domain.labels,
        configs=tuple(counts[place] for place in range(len(domain.labels))),
        proposals=len(setting),
        kept=sum(turn.outcome == "keep" for turn in setting),
        delta=of_mean(deltas) if deltas else None,
    )
