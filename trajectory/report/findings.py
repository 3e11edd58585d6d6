"""A campaign's findings, as the values from which the page's texts and figures are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from autoresearch.values import Scalar
from trainer.spec import BPB, Measure
from trajectory.confirmed import Confirmed, ConfirmedConfig
from trajectory.ranking import Posteriors, Ranked
from trajectory.reading import Reign
from trajectory.report.details import Chunk
from trajectory.report.reading.iterations import CurveReader, Iteration
from trajectory.report.reading.knobs import ReportedKnob, Sample, places
from trajectory.report.reading.ledger import Ledger
from trajectory.spending import SearchBill
from trajectory.statistics.intervals import Estimate, RunNoise
from trajectory.statistics.standings import Standing

UNIT: Mapping[str, str] = {
    "val_bpb": "bits per byte",
    "val_bits_per_token": "bits per token",
}


@dataclass(frozen=True, slots=True)
class About:
    """Description of the campaign, and how its scores were measured."""

    title: str
    """The campaign's name: the name of its directory."""
    campaign_id: str
    """The id in its journal; empty for an imported campaign."""
    begun: str
    """Start time in ISO 8601, or as the other tool writes it."""
    source: str
    """The file that every number comes from."""
    measure: str
    """Name of the measure that scores are in."""
    facts: tuple[tuple[str, str], ...]
    """Name and value of each part of the evaluation protocol."""
    caution: str = ""
    """Warning about scores that the built-in trainer did not measure; empty if it did."""
    paired: bool = True
    """Whether trials name their seeds, so that configs can be compared in pairs."""
    scoring: Measure = BPB
    """Unit and direction of the scores. All numbers here are objectives; texts convert them
    back."""
    pauses: int = 0
    interruptions: int = 0

    @property
    def unit(self) -> str:
        """The measure's unit, in words."""
        return UNIT.get(self.measure, self.measure)

    @property
    def better_sign(self) -> str:
        """Sign of a difference that is an improvement."""
        return "negative" if self.scoring.direction == "minimise" else "positive"

    @property
    def better_side(self) -> str:
        """Side of zero on which the interval of an improvement lies."""
        return "below" if self.scoring.direction == "minimise" else "above"


_ESTIMATES = (
    *("iter", "n", "mean_objective", "objective", "objective_lo", "objective_hi"),
    *("delta_lo", "delta_hi", "beats_baseline"),
)
"""Fields of a ranked config that a :class:`Best` has under the same names."""


@dataclass(frozen=True, slots=True)
class Best:
    """One of the best configs."""

    iter: int
    """The iteration that first proposed it; 0 for the baseline."""
    name: str
    """Name used if the config itself is unknown, such as a commit; empty if it is known."""
    is_baseline: bool
    n: int
    objective: float
    """Posterior mean."""
    objective_lo: float | None
    """Lower end of its 95 % interval."""
    objective_hi: float | None
    mean_objective: float
    delta: float | None
    """Posterior mean of the difference to the baseline; negative is better."""
    delta_lo: float | None
    """Lower end of its 95 % interval."""
    delta_hi: float | None
    beats_baseline: bool
    """Whether the whole 99 % interval of the difference is an improvement."""
    train_s: float | None
    difference: Mapping[str, tuple[Scalar | None, Scalar | None]]
    """Fields that differ from the best config, or from the baseline if this is the best one. Each
    has the other config's value, then this one's. Imported configs are compared with the
    baseline."""
    fresh: ConfirmedConfig | None = None
    """Result of fresh runs of it; None if there were none."""

    @classmethod
    def of(
        cls,
        found: Ranked | Standing[Any],
        values: Mapping[str, Scalar],
        others: Mapping[str, Scalar],
        **more: Any,
    ) -> Self:
        """Return a config's estimates with its difference from another.

        :param values: the config's values.
        :param others: those of the config that it is compared with.
        :param more: the other fields.
        """
        same: dict[str, Any] = {name: getattr(found, name) for name in _ESTIMATES}
        changed = {n: (others.get(n), v) for n, v in values.items() if v != others.get(n)}
        return cls(**same, delta=found.delta_vs_baseline, difference=changed, **more)


@dataclass(frozen=True, slots=True)
class Stops:
    """Proposals and trials without a result."""

    repeats: int
    """Proposals of a config that had been trained before, whether refused or trained again."""
    refusals: Mapping[str, int]
    """Refusals by rail, of proposals and of single replies of a language model."""
    failures: Mapping[str, int]
    """Failed trials by status."""
    trials: int
    """Trials of the baseline and of iterations."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Data that only this tool's own journal has: proposers, time, seeds, curves, long runs."""

    ledger: Ledger
    posteriors: Posteriors
    best: tuple[Ranked, ...]
    """The first configs of the ranking."""
    read: CurveReader
    """Reads a trial's curve."""
    bill: SearchBill
    """Time, energy and money that the search took."""


@dataclass(frozen=True)
class Findings:
    """All findings of a campaign, as far as its files record them."""

    about: About
    finding: str
    """The result in one clause: the report's title."""
    iterations: tuple[Iteration, ...]
    noise: RunNoise | None
    shrunk: bool
    """Whether there are enough configs to shrink means towards the others."""
    baseline: Estimate | None
    """Posterior mean with its 95 % interval, as in ``top``; None before the baseline was
    measured."""
    best: tuple[Best, ...]
    reigns: tuple[Reign, ...]
    """Each incumbent, and the iteration since which it was the incumbent."""
    believed: Mapping[str, float]
    """Posterior means by config hash, at least of kept configs and incumbents."""
    knobs: tuple[ReportedKnob, ...]
    """The campaign's knobs, in the menu's order."""
    samples: tuple[Sample, ...]
    """One sample for every trained config, the baseline included."""
    incumbent: Mapping[str, Scalar]
    """The incumbent's value of every knob; empty if there is no incumbent."""
    stops: Stops
    details: tuple[Chunk, ...]
    ours: Ours | None = None
    """Data from its journal; None for an imported campaign."""
    confirmed: Confirmed | None = None
    """The latest confirmation."""

    def with_facts(self, facts: Iterable[tuple[str, str]]) -> Self:
        """Return these findings with more facts about the campaign."""
        return replace(self, about=replace(self.about, facts=(*self.about.facts, *facts)))

    @property
    def confirmed_choice(self) -> bool:
        """Whether the latest confirmation chose the config that is the best now."""
        if self.confirmed is None or not self.best or self.best[0].fresh is None:
            return False
        return self.best[0].fresh.config_hash == self.confirmed.chosen.config_hash

    @property
    def kept(self) -> tuple[Iteration, ...]:
        """The iterations whose decision was "keep"."""
        return tuple(iteration for iteration in self.iterations if iteration.outcome == "keep")

    @cached_property
    def places(self) -> dict[str, list[int | None]]:
        """The cell of each sample's value, for each knob; None for a value outside its domain."""
        return {knob.name: places(self.samples, knob) for knob in self.knobs}
