"""A campaign's findings, as the values from which the page's texts and figures are made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self, get_args

from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from trainer.spec import AnyConfig, FailureStatus, Measure
from trajectory.confirmed import NOTHING_YET, Confirmed, ConfirmedConfig, finding, latest_of
from trajectory.proposals import RailName
from trajectory.ranking import Posteriors, Ranked
from trajectory.reading import Reign
from trajectory.report.details import Chunk
from trajectory.report.iterations import CurveReader, Iteration
from trajectory.report.ledger import Ledger, read_ledger
from trajectory.rows import CampaignRow, Row
from trajectory.spending import SearchBill
from trajectory.statistics.intervals import Estimate, RunNoise
from trajectory.statistics.standings import baseline_estimate

BEST = 10
"""Configs in the ranking."""


@dataclass(frozen=True, slots=True)
class About:
    """Description of the campaign, and how its scores were measured."""

    title: str
    """The campaign's name: the name of its directory."""
    campaign_id: str
    begun: str
    """Start time in ISO 8601."""
    scoring: Measure
    """Unit and direction of the scores. All numbers here are objectives; texts convert them
    back."""
    facts: tuple[tuple[str, str], ...]
    """Name and value of each part of the evaluation protocol."""
    caution: str
    """Warning about scores that the built-in trainer did not measure; empty if it did."""
    pauses: int
    interruptions: int

    @property
    def measure(self) -> str:
        """Name of the measure that scores are in."""
        return self.scoring.name

    @property
    def unit(self) -> str:
        """The measure's unit, in words."""
        return self.scoring.unit

    @property
    def better_sign(self) -> str:
        """Sign of a difference that is an improvement."""
        return "negative" if self.scoring.direction == "minimise" else "positive"

    @property
    def better_side(self) -> str:
        """Side of zero on which the interval of an improvement lies."""
        return "below" if self.scoring.direction == "minimise" else "above"


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
class Sample:
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
    confirmed: Confirmed | None
    """The latest confirmation."""
    read: CurveReader
    """Reads a trial's curve."""
    bill: SearchBill
    """Time, energy and money that the search took."""

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
        return {knob.name: _places(self.samples, knob) for knob in self.knobs}


def _places(samples: Iterable[Sample], knob: ReportedKnob) -> list[int | None]:
    known: dict[tuple[type, Scalar | None], int | None] = {}
    found = []
    for sample in samples:
        value = sample.values.get(knob.name)
        key = value.__class__, value  # True equals 1, and is another value
        if key not in known:
            known[key] = knob.domain.place(value)
        found.append(known[key])
    return found


def read_findings(
    journal: Path,
    knobs: Sequence[ReportedKnob],
    values: Callable[[AnyConfig], Mapping[str, Scalar]],
    read: CurveReader,
    count: Callable[[Row], None],
    bill: Callable[[], SearchBill],
) -> Findings:
    """Return the findings of a journal.

    :param knobs: the campaign's knobs, in the menu's order.
    :param values: returns a config's values of the knobs.
    :param read: reads a trial's curve.
    :param count: counts the cost of each row.
    :param bill: returns the cost of all rows.
    :raises JournalError: if the journal is damaged or empty.
    """
    ledger = read_ledger(journal, count)
    evidence = ledger.evidence
    posteriors = Posteriors.of(evidence)
    noise, population = posteriors.noise, posteriors.population
    best = posteriors.best(BEST)
    baseline = evidence.configs.get(evidence.baseline_hash or "")
    incumbent = evidence.configs.get(evidence.incumbent_hash or "")
    fresh = latest_of(reversed(ledger.confirmed))
    headline = NOTHING_YET
    for held in posteriors.of_configs([incumbent.config_hash] if incumbent else []):
        gain = held.delta_vs_baseline, held.delta_lo, held.delta_hi
        headline = finding(ledger.campaign.measured_in, fresh.get(held.config_hash), *gain)
    kept = (one.config_hash for one in ledger.iterations if one.outcome == "keep")
    chosen = {*(reign.config_hash for reign in ledger.reigns), *filter(None, kept)}
    refusals = evidence.tally.refusals
    return Findings(
        about=_about(ledger, journal.absolute().parent.name),
        ledger=ledger,
        posteriors=posteriors,
        finding=headline,
        iterations=tuple(ledger.iterations),
        noise=noise,
        shrunk=population is not None,
        baseline=baseline_estimate(baseline, noise, population)
        if baseline is not None and baseline.n
        else None,
        best=tuple(_best(entry, ledger, fresh, best[0].config) for entry in best),
        reigns=tuple(ledger.reigns),
        believed=posteriors.objectives(chosen),
        knobs=tuple(knobs),
        samples=tuple(
            Sample(values(entry.config), entry.mean if entry.n else None)
            for entry in evidence.configs.values()
            if entry.n or entry.failures
        ),
        incumbent=values(incumbent.config) if incumbent else {},
        stops=Stops(
            repeats=ledger.repeats + refusals["novelty"],
            refusals={rail: refusals[rail] for rail in get_args(RailName)},
            failures={status: ledger.failures[status] for status in get_args(FailureStatus)},
            trials=ledger.trials,
        ),
        details=ledger.details.chunks,
        confirmed=ledger.confirmed[-1] if ledger.confirmed else None,
        read=read,
        bill=bill(),
    )


def _best(
    entry: Ranked, ledger: Ledger, fresh: Mapping[str, ConfirmedConfig], first: AnyConfig
) -> Best:
    other = ledger.baseline if entry.config is first else first
    values = entry.config.said if other else entry.config.canonical()
    others = other.said if other else {}
    return Best(
        entry,
        is_baseline=entry.config_hash == ledger.evidence.baseline_hash,
        difference={n: (others.get(n), v) for n, v in values.items() if v != others.get(n)},
        fresh=fresh.get(entry.config_hash),
    )


def _about(ledger: Ledger, name: str) -> About:
    row, use = ledger.campaign, ledger.lane_use
    facts = _facts(row)
    if use.share is not None:
        each = ", ".join(f"{lane} {share:.0%}" for lane, share in use.of_lanes())
        by_lane = f" (lane by lane: {each})" if each else ""
        said = f"up to {use.lanes} trials at once, {use.share:.0%} of the lanes' time{by_lane}"
        facts.append(("lanes", said))
    caution = ""
    if row.script is not None:
        who, whose = "the campaign's command", "that script"
        if row.script.check:
            who, whose = "the menu's check", "that check"
        caution = (
            f"The score is what {who} printed, in {row.measured_in.unit}. This page does not know "
            f"how {whose} measured it."
        )
    return About(
        title=name or row.menu_name,
        campaign_id=row.id,
        begun=row.created_at,
        scoring=row.measured_in,
        facts=tuple(facts),
        caution=caution,
        pauses=ledger.pauses,
        interruptions=ledger.interruptions,
    )


def _facts(row: CampaignRow) -> list[tuple[str, str]]:
    corpus, script, measure = row.corpus, row.script, row.measured_in
    facts: list[tuple[str, str]] = []
    if corpus is not None:
        trained = f"{corpus.name}, {corpus.train_tokens:,} training tokens"
        facts += [
            ("corpus", f"{trained}, sha256 {corpus.sha256[:12]}"),
            (
                "held out",
                f"{corpus.heldout_bytes:,} bytes in {corpus.heldout_tokens:,} tokens, the same "
                "for every config",
            ),
            ("tokenizer", f"{corpus.tokenizer}, vocabulary {corpus.vocab_size:,}"),
        ]
    if script is not None:
        code = f"{script.directory}, {script.files:,} files of code, sha256 {script.sha256[:12]}"
        scorer = "check" if script.check else "command"
        facts.append(("command", " ".join(script.command)))
        if script.check:
            facts.append(("check", " ".join(script.check)))
        facts += [
            ("script", code),
            ("score", f"{measure.unit}, {measure.better}, as the {scorer} says it"),
        ]
    horizon = (
        f", the prefix of a schedule of {row.horizon_steps:,} steps" if row.horizon_steps else ""
    )
    cooled = f", the last {row.cooldown_steps} cooling down" if row.cooldown_steps else ""
    scored = f", scored with {row.average} of its weights" if row.average else ""
    backend = f"{row.backend} on {row.device}" if script is None else f"on {row.device}"
    return [
        *facts,
        ("a trial", f"{row.budget}{horizon}{cooled}{scored}"),
        ("backend", backend),
        (
            "judge",
            f"against the {row.reference}; kept at z ≥ {row.z_keep:g} over up to "
            f"{row.max_runs} common seeds",
        ),
        ("sandbox", row.sandbox),
        ("hardware", _listed(row.hardware)),
        ("versions", _listed(row.versions)),
        ("menu", f"{row.menu_name}, sha256 {row.menu_sha256[:12]}"),
    ]


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
