"""All that a report says, as values: what the page words and the figures draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from autoresearch.values import Scalar
from trajectory.report.coverage import Coverage
from trajectory.report.effects import KnobEffect
from trajectory.report.importance import Importances
from trajectory.report.longruns import LongRunFindings
from trajectory.report.progress import Progress
from trajectory.report.proposers import ProposerFigures
from trajectory.report.reading.curves import LearningCurve
from trajectory.report.reading.turns import Turn
from trajectory.report.spending import Spending
from trajectory.report.statistics import RunNoise
from trajectory.report.words.details import Chunk

MOST_KEPT = 30
"""Kept iterations in the list of them, the latest; the table has all."""
Measure: TypeAlias = Literal["val_bpb", "val_bits_per_token"]
UNIT: Mapping[Measure, str] = {
    "val_bpb": "bits per byte",
    "val_bits_per_token": "bits per token",
}


@dataclass(frozen=True, slots=True)
class About:
    """What the campaign is, and what it was measured with."""

    title: str
    """The campaign's name: that of its directory."""
    campaign_id: str
    """Empty for another tool's."""
    begun: str
    """ISO 8601, or as another tool writes it."""
    source: str
    """The file that every number comes from."""
    measure: Measure
    """What scores are; lower is better."""
    facts: tuple[tuple[str, str], ...]
    """What of the ruler, and its value."""
    caution: str = ""
    """What a reader of another tool's numbers must know; empty for our own."""
    paired: bool = True
    """Whether trials name their seeds, so that configs are compared in pairs."""
    pauses: int = 0
    interruptions: int = 0

    @property
    def unit(self) -> str:
        """Of the measure, in words."""
        return UNIT[self.measure]


@dataclass(frozen=True, slots=True)
class Best:
    """One of the best configs."""

    iter: int
    """That first proposed it; 0 for the baseline."""
    name: str
    """What stands for a config that is not given, such as a commit; empty where one is."""
    is_baseline: bool
    n: int
    posterior: float
    lo: float | None
    """95 % interval of the posterior."""
    hi: float | None
    mean: float
    delta: float | None
    """Against the baseline, as believed; negative is better."""
    delta_lo: float | None
    """Its 95 % interval."""
    delta_hi: float | None
    beats_baseline: bool
    """All of that interval is better."""
    train_s: float | None
    difference: Mapping[str, tuple[Scalar | None, Scalar | None]]
    """The fields in which it is not the baseline: the baseline's value and its own."""


@dataclass(frozen=True)
class Findings:
    """A campaign, read."""

    about: About
    turns: tuple[Turn, ...]
    noise: RunNoise | None
    best: tuple[Best, ...]
    progress: Progress
    effects: tuple[KnobEffect, ...]
    importances: Importances
    coverage: Coverage
    details: tuple[Chunk, ...]
    believed: Mapping[str, float]
    """Posterior means of what was kept lately, by the config's hash."""
    proposers: tuple[ProposerFigures, ...] = ()
    spending: Spending | None = None
    """None where nothing is known of time."""
    curves: tuple[tuple[str, LearningCurve], ...] = ()
    """Of the best, as far as they left one, each by its name."""
    baseline_curve: LearningCurve | None = None
    long_runs: LongRunFindings | None = None

    @property
    def kept(self) -> tuple[Turn, ...]:
        """The iterations that ended with a new incumbent, or would have."""
        return tuple(turn for turn in self.turns if turn.outcome == "keep")
