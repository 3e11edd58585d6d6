"""Findings of one of our own campaigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from autoresearch.values import Scalar
from trainer.spec import Config, FailureStatus
from trajectory.ranking import Ranked
from trajectory.report.coverage import Stops, coverage
from trajectory.report.effects import effects
from trajectory.report.findings import MOST_KEPT, About, Best, Findings
from trajectory.report.importance import importances
from trajectory.report.longruns import long_runs
from trajectory.report.progress import Standings, progress
from trajectory.report.proposers import proposers
from trajectory.report.reading.curves import CurveReader, LearningCurve, curve_of
from trajectory.report.reading.ledger import Ledger, read_ledger
from trajectory.report.reading.samples import ReportedKnob, knob_values, samples
from trajectory.report.spending import spending
from trajectory.rows import CampaignRow, RailName

BEST = 10
"""Configs in the ranking."""
CURVES = 5
"""Of these, with a learning curve."""


def read_campaign(
    journal: Path, knobs: Sequence[ReportedKnob], read: CurveReader, usd_per_kwh: float
) -> Findings:
    """Everything a journal says.

    :param knobs: the campaign's, in the menu's order.
    :param read: where the trials' curves come from.
    :param usd_per_kwh: what a kilowatt-hour costs.
    :raises JournalError: where the journal is damaged or empty.
    """
    ledger = read_ledger(journal)
    evidence = ledger.evidence
    standings = Standings.of(evidence)
    best = standings.best(BEST)
    points = samples(evidence.configs.values(), knobs)
    incumbent = evidence.configs.get(evidence.incumbent_hash or "")
    baseline = evidence.configs.get(evidence.baseline_hash or "")
    return Findings(
        about=_about(ledger, journal.absolute().parent.name),
        turns=tuple(ledger.turns),
        noise=standings.noise,
        best=tuple(_best(entry, ledger) for entry in best),
        progress=progress(ledger, standings),
        effects=effects(points, knobs, knob_values(incumbent.config, knobs) if incumbent else {}),
        importances=importances(points, knobs),
        coverage=coverage(ledger.turns, points, knobs, _stops(ledger)),
        details=ledger.details.chunks,
        believed=_believed(ledger, standings),
        proposers=proposers(ledger),
        spending=spending(ledger, usd_per_kwh),
        curves=tuple(_curves(best, ledger, read)),
        baseline_curve=curve_of(baseline, read) if baseline else None,
        long_runs=long_runs(ledger, standings, read),
    )


def _believed(ledger: Ledger, standings: Standings) -> dict[str, float]:
    kept = [t.config_hash for t in ledger.turns if t.outcome == "keep" and t.config_hash]
    ranked = standings.of_configs(set(kept[-MOST_KEPT:]))
    return {entry.config_hash: entry.posterior_bpb for entry in ranked}


def _about(ledger: Ledger, name: str) -> About:
    row = ledger.campaign
    return About(
        title=name or row.menu_name,
        campaign_id=row.id,
        begun=row.created_at,
        source="trajectory.jsonl and the trials' curves",
        measure="val_bpb",
        facts=_facts(row),
        pauses=ledger.pauses,
        interruptions=ledger.interruptions,
    )


def _facts(row: CampaignRow) -> tuple[tuple[str, str], ...]:
    corpus = row.corpus
    horizon = (
        f", the prefix of a schedule of {row.horizon_steps:,} steps" if row.horizon_steps else ""
    )
    return (
        (
            "corpus",
            f"{corpus.name}, {corpus.train_tokens:,} training tokens, sha256 {corpus.sha256[:12]}",
        ),
        (
            "held out",
            f"{corpus.heldout_bytes:,} bytes in {corpus.heldout_tokens:,} tokens, the same "
            "for every config",
        ),
        ("tokenizer", f"{corpus.tokenizer}, vocabulary {corpus.vocab_size:,}"),
        ("a trial", f"{row.budget}{horizon}"),
        ("backend", f"{row.backend} on {row.device}"),
        (
            "judge",
            f"against the {row.reference}; kept at z ≥ {row.z_keep:g} over up to "
            f"{row.max_runs} common seeds",
        ),
        ("sandbox", row.sandbox),
        ("hardware", _listed(row.hardware)),
        ("versions", _listed(row.versions)),
        ("menu", f"{row.menu_name}, sha256 {row.menu_sha256[:12]}"),
    )


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _best(entry: Ranked, ledger: Ledger) -> Best:
    return Best(
        iter=entry.iter,
        name="",
        is_baseline=entry.config_hash == ledger.evidence.baseline_hash,
        n=entry.n,
        posterior=entry.posterior_bpb,
        lo=entry.lo_bpb,
        hi=entry.hi_bpb,
        mean=entry.mean_bpb,
        delta=entry.delta_vs_baseline,
        delta_lo=entry.delta_lo,
        delta_hi=entry.delta_hi,
        beats_baseline=entry.beats_baseline,
        train_s=entry.train_s,
        difference=_difference(entry.config, ledger.baseline),
    )


def _difference(config: Config, baseline: Config | None) -> dict[str, tuple[Scalar | None, Scalar]]:
    base = baseline.canonical() if baseline else {}
    own = config.canonical()
    return {name: (base.get(name), value) for name, value in own.items() if value != base.get(name)}


def _curves(
    best: Sequence[Ranked], ledger: Ledger, read: CurveReader
) -> list[tuple[str, LearningCurve]]:
    others = [entry for entry in best if entry.config_hash != ledger.evidence.baseline_hash]
    named = (
        (f"iteration {entry.iter}", curve_of(ledger.evidence.configs[entry.config_hash], read))
        for entry in others[:CURVES]
    )
    return [(name, curve) for name, curve in named if curve is not None]


def _stops(ledger: Ledger) -> Stops:
    refusals, failures = ledger.evidence.refusals, ledger.failures
    return Stops(
        repeats=ledger.repeats + refusals["novelty"],
        refusals={rail: refusals[rail] for rail in get_args(RailName)},
        failures={status: failures[status] for status in get_args(FailureStatus)},
        trials=ledger.trials,
    )
