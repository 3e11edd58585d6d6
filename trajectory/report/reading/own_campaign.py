"""Findings of a campaign that this tool ran."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from trainer.spec import AnyConfig, FailureStatus
from trajectory.confirmed import NOTHING_YET, ConfirmedConfig, finding, latest_of
from trajectory.proposals import RailName
from trajectory.ranking import Posteriors, Ranked
from trajectory.report.findings import About, Best, Findings, Ours, Stops
from trajectory.report.reading.iterations import CurveReader
from trajectory.report.reading.knobs import ReportedKnob, knob_values, samples
from trajectory.report.reading.ledger import Ledger, read_ledger
from trajectory.rows import CampaignRow, Row
from trajectory.spending import SearchBill
from trajectory.statistics.standings import baseline_estimate

BEST = 10
"""Configs in the ranking."""


def read_campaign(
    journal: Path,
    knobs: Sequence[ReportedKnob],
    read: CurveReader,
    count: Callable[[Row], None],
    bill: Callable[[], SearchBill],
) -> Findings:
    """Return the findings of a journal.

    :param knobs: the campaign's knobs, in the menu's order.
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
    entry = evidence.configs.get(evidence.baseline_hash or "")
    baseline = entry if entry is not None and entry.n else None
    incumbent = evidence.configs.get(evidence.incumbent_hash or "")
    found = ledger.confirmed[::-1]
    fresh = latest_of(found)
    held = next(iter(posteriors.of_configs([incumbent.config_hash] if incumbent else [])), None)
    headline = NOTHING_YET
    if held is not None:
        gain = held.delta_vs_baseline, held.delta_lo, held.delta_hi
        headline = finding(ledger.campaign.measured_in, fresh.get(held.config_hash), *gain)
    kept = (one.config_hash for one in ledger.iterations if one.outcome == "keep")
    chosen = {*(reign.config_hash for reign in ledger.reigns), *filter(None, kept)}
    return Findings(
        about=_about(ledger, journal.absolute().parent.name),
        finding=headline,
        iterations=tuple(ledger.iterations),
        noise=noise,
        shrunk=population is not None,
        baseline=baseline_estimate(baseline, noise, population) if baseline else None,
        best=tuple(_best(entry, ledger, fresh, best[0].config) for entry in best),
        reigns=tuple(ledger.reigns),
        believed=posteriors.objectives(chosen),
        knobs=tuple(knobs),
        samples=tuple(samples(evidence.configs.values(), knobs)),
        incumbent=knob_values(incumbent.config, knobs) if incumbent else {},
        stops=_stops(ledger),
        details=ledger.details.chunks,
        ours=Ours(ledger, posteriors, tuple(best), read, bill()),
        confirmed=found[0] if found else None,
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
        source="trajectory.jsonl and the trials' curves",
        measure=row.measured_in.name,
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


def _best(
    entry: Ranked, ledger: Ledger, fresh: Mapping[str, ConfirmedConfig], first: AnyConfig
) -> Best:
    other = ledger.baseline if entry.config is first else first
    return Best.of(
        entry,
        entry.config.said if other else entry.config.canonical(),
        other.said if other else {},
        name="",
        is_baseline=entry.config_hash == ledger.evidence.baseline_hash,
        train_s=entry.train_s,
        fresh=fresh.get(entry.config_hash),
    )


def _stops(ledger: Ledger) -> Stops:
    refusals, failures = ledger.evidence.tally.refusals, ledger.failures
    return Stops(
        repeats=ledger.repeats + refusals["novelty"],
        refusals={rail: refusals[rail] for rail in get_args(RailName)},
        failures={status: failures[status] for status in get_args(FailureStatus)},
        trials=ledger.trials,
    )
