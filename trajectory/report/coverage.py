"""What the search looked at, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajectory.report.reading.samples import ReportedKnob, Sample
from trajectory.report.reading.turns import Turn
from trajectory.report.statistics import Estimate, of_mean
from trajectory.report.words.wording import cell_text


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
    """All there were, of the baseline and of iterations."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far the search has gone."""

    knobs: tuple[KnobCoverage, ...]
    configs: int
    """Trained, the baseline included."""
    stops: Stops


def coverage(
    turns: Sequence[Turn], samples: Sequence[Sample], knobs: Sequence[ReportedKnob], stops: Stops
) -> Coverage:
    """What the campaign has looked at so far."""
    covered = tuple(_covered(turns, samples, knob) for knob in knobs)
    return Coverage(covered, len(samples), stops)


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
