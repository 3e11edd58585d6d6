"""All that was found in a campaign, as values: what the page words and the figures are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autoresearch.values import Scalar
from trainer.spec import BPB, Measure
from trajectory.confirmed import Confirmed, ConfirmedConfig
from trajectory.ranking import Ranked
from trajectory.report.importance import Importances, importances
from trajectory.report.reading.curves import CurveReader
from trajectory.report.reading.ledger import Ledger
from trajectory.report.reading.posteriors import Posteriors
from trajectory.report.reading.samples import ReportedKnob, Sample
from trajectory.report.reading.turns import Reign, Turn
from trajectory.report.statistics import Estimate
from trajectory.report.words.details import Chunk
from trajectory.search_bill import SearchBill
from trajectory.statistics.run_noise import RunNoise

UNIT: Mapping[str, str] = {
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
    measure: str
    """What scores are, by name."""
    facts: tuple[tuple[str, str], ...]
    """What of the ruler, and its value."""
    caution: str = ""
    """What a reader of another tool's numbers must know; empty for our own."""
    paired: bool = True
    """Whether trials name their seeds, so that configs are compared in pairs."""
    ruler: Measure = BPB
    """Turns the objectives that all else here is of back into scores, where words are made."""
    pauses: int = 0
    interruptions: int = 0

    @property
    def unit(self) -> str:
        """The measure's unit, in words."""
        return UNIT.get(self.measure, self.measure)

    @property
    def better_sign(self) -> str:
        """That of a difference which is a gain."""
        return "negative" if self.ruler.direction == "minimise" else "positive"

    @property
    def better_side(self) -> str:
        """Of zero, where an interval of a gain lies."""
        return "below" if self.ruler.direction == "minimise" else "above"


@dataclass(frozen=True, slots=True)
class Best:
    """One of the best configs."""

    iter: int
    """That first proposed it; 0 for the baseline."""
    name: str
    """What stands for a config that is not given, such as a commit; empty where one is."""
    is_baseline: bool
    n: int
    objective: float
    """Posterior mean."""
    objective_lo: float | None
    """Its 95 % interval."""
    objective_hi: float | None
    mean_objective: float
    delta: float | None
    """Against the baseline, as believed; negative is better."""
    delta_lo: float | None
    """Its 95 % interval."""
    delta_hi: float | None
    beats_baseline: bool
    """All of its 99 % interval is better."""
    train_s: float | None
    difference: Mapping[str, tuple[Scalar | None, Scalar | None]]
    """The fields in which it differs from the first of the best, or that one from the baseline: the
    other's value and its own."""
    fresh: ConfirmedConfig | None = None
    """What fresh runs say of it, where there were any."""


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
    """Trials of the baseline and of iterations."""


@dataclass(frozen=True, slots=True)
class Ours:
    """What only a journal of ours tells: proposers, time, seeds, curves, long runs."""

    ledger: Ledger
    posteriors: Posteriors
    best: tuple[Ranked, ...]
    """The head of the ranking."""
    read: CurveReader
    """Where the trials' curves come from."""
    bill: SearchBill
    """What the search took and cost."""


@dataclass(frozen=True)
class Findings:
    """A campaign, read: ours, or another tool's as far as its file goes."""

    about: About
    finding: str
    """What it found, in one clause: the report's title."""
    turns: tuple[Turn, ...]
    noise: RunNoise | None
    shrunk: bool
    """Whether there are configs enough to shrink the rest by."""
    baseline: Estimate | None
    """As believed, with its 95 % interval: what ``top`` says of it; None before it was measured."""
    best: tuple[Best, ...]
    reigns: tuple[Reign, ...]
    """Which config was the incumbent, and from when."""
    believed: Mapping[str, float]
    """Posterior means of what was kept or reigned, by the config's hash."""
    knobs: tuple[ReportedKnob, ...]
    """The campaign's, in the menu's order."""
    samples: tuple[Sample, ...]
    """A sample for every config that was trained, the baseline included."""
    incumbent: Mapping[str, Scalar]
    """Its value of every knob; empty where there is none."""
    stops: Stops
    details: tuple[Chunk, ...]
    ours: Ours | None = None
    """None for another tool's."""
    confirmed: Confirmed | None = None
    """The latest confirmation."""

    @property
    def confirmed_choice(self) -> bool:
        """Whether the latest confirmation chose the config that is the best now."""
        if self.confirmed is None or not self.best or self.best[0].fresh is None:
            return False
        return self.best[0].fresh.config_hash == self.confirmed.chosen.config_hash

    @property
    def kept(self) -> tuple[Turn, ...]:
        """The iterations that ended with a new incumbent, or would have."""
        return tuple(turn for turn in self.turns if turn.outcome == "keep")

    @cached_property
    def importances(self) -> Importances:
        """How much each knob matters for the score: computed once, for it takes a second."""
        return importances(self.samples, self.knobs)
