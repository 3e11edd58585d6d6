"""A campaign's findings, as the values from which the page's texts and figures are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import get_args

from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from trainer.schema import AnyConfig, FailureStatus
from trajectory.confirmed import Confirmed, ConfirmedConfig
from trajectory.headline import Headline
from trajectory.proposals import RailName
from trajectory.ranking import Posteriors, Ranked
from trajectory.reading import Reign
from trajectory.report.about import About, about_of
from trajectory.report.iterations import CurveReader, ReportedIteration
from trajectory.report.ledger import Ledger, read_ledger
from trajectory.rows import Row
from trajectory.spending import SearchBill
from trajectory.statistics.intervals import Estimate, RunNoise

BEST = 10
"""Configs in the ranking."""


@dataclass(frozen=True, slots=True)
class Best:
    """One of the best configs."""

    entry: Ranked
    is_baseline: bool
    difference: Mapping[str, tuple[Scalar | None, Scalar | None]]
    """Fields that differ from the best config, or from the baseline if this is the best one. Each
    has the other config's value, then this one's."""
    fresh: ConfirmedConfig | None
    """Result of fresh runs of it; None if there were none."""


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
class ReportedKnob:
    """A knob of the campaign."""

    name: str
    domain: Domain
    default: Scalar


@dataclass(frozen=True, slots=True)
class SampledConfig:
    """One trained config, counted once however often it was trained."""

    values: Mapping[str, Scalar]
    """Values by knob."""
    mean: float | None
    """Mean score of its runs; None if none was measured."""


@dataclass(frozen=True)
class Findings:
    """All findings of a campaign, as far as its files record them."""

    about: About
    ledger: Ledger
    posteriors: Posteriors
    headline: Headline
    iterations: tuple[ReportedIteration, ...]
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
    samples: tuple[SampledConfig, ...]
    """One sample for every trained config, the baseline included."""
    incumbent: Mapping[str, Scalar]
    """The incumbent's value of every knob; empty if there is no incumbent."""
    stops: Stops
    details: tuple[str, ...]
    """Details of all iterations, packed (:mod:`trajectory.report.details`)."""
    confirmed: Confirmed | None
    """The latest confirmation."""
    read: CurveReader
    """Reads a trial's curve."""
    bill: SearchBill
    """Time, energy and money that the search took."""
    device: str
    """Mean and peak of the device's use, as a clause; empty if it was not sampled."""

    @property
    def kept(self) -> tuple[ReportedIteration, ...]:
        """The iterations whose decision was "keep"."""
        return tuple(iteration for iteration in self.iterations if iteration.outcome == "keep")

    @cached_property
    def places(self) -> dict[str, list[int | None]]:
        """The cell of each sample's value, for each knob; None for a value outside its domain."""
        places: dict[str, list[int | None]] = {}
        for knob in self.knobs:
            known: dict[tuple[type, Scalar | None], int | None] = {}
            found = places[knob.name] = []
            for sample in self.samples:
                value = sample.values.get(knob.name)
                key = value.__class__, value  # True equals 1, and is another value
                if key not in known:
                    known[key] = knob.domain.place(value)
                found.append(known[key])
        return places


def read_findings(
    journal: Path,
    knobs: Sequence[ReportedKnob],
    values: Callable[[AnyConfig], Mapping[str, Scalar]],
    read: CurveReader,
    count: Callable[[Row], None],
    bill: Callable[[], SearchBill],
    device: str = "",
) -> Findings:
    """Return the findings of a journal.

    :param values: returns a config's values of the knobs.
    :param count: counts the cost of each row; ``bill`` returns that of all rows.
    :raises JournalError: if the journal is damaged or empty.
    """
    ledger = read_ledger(journal, count)
    evidence = ledger.evidence
    posteriors = Posteriors.of(evidence)
    best = posteriors.best(BEST)
    incumbent = evidence.configs.get(evidence.incumbent_hash or "")
    fresh = ledger.latest_confirmed()
    confirmed = ledger.confirmed()
    kept = {one.config_hash or "" for one in ledger.iterations if one.outcome == "keep"}
    samples = (
        SampledConfig(values(one.config), one.mean if one.n else None)
        for one in evidence.configs.values()
        if one.n or one.failures
    )
    return Findings(
        about=about_of(ledger, journal.absolute().parent.name),
        ledger=ledger,
        posteriors=posteriors,
        headline=Headline.of(posteriors, confirmed, ledger.row),
        iterations=tuple(ledger.iterations),
        noise=posteriors.noise,
        shrunk=posteriors.population is not None,
        baseline=posteriors.baseline_estimate(),
        best=tuple(_best(entry, ledger, fresh, best[0].config) for entry in best),
        reigns=tuple(ledger.reigns),
        believed=posteriors.objectives({*(reign.config_hash for reign in ledger.reigns), *kept}),
        knobs=tuple(knobs),
        samples=tuple(samples),
        incumbent=values(incumbent.config) if incumbent else {},
        stops=_stops(ledger),
        details=ledger.details.chunks,
        confirmed=confirmed,
        read=read,
        bill=bill(),
        device=device,
    )


def _stops(ledger: Ledger) -> Stops:
    refusals, failures = ledger.evidence.refusals, ledger.failures
    return Stops(
        repeats=ledger.repeats + refusals["novelty"],
        refusals={rail: refusals[rail] for rail in get_args(RailName)},
        failures={status: failures[status] for status in get_args(FailureStatus)},
        trials=ledger.trials,
    )


def _best(
    entry: Ranked, ledger: Ledger, fresh: Mapping[str, ConfirmedConfig], first: AnyConfig
) -> Best:
    baseline = ledger.baseline.config if ledger.baseline else None
    other = baseline if entry.config is first else first
    values = entry.config.said if other else entry.config.canonical()
    others = other.said if other else {}
    return Best(
        entry,
        is_baseline=entry.config_hash == ledger.evidence.baseline_hash,
        difference={n: (others.get(n), v) for n, v in values.items() if v != others.get(n)},
        fresh=fresh.get(entry.config_hash),
    )
