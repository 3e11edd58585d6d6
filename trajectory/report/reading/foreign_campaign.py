"""Findings of a campaign that another tool measured, as far as its file goes.

The file names no seeds, so nothing is paired. The noise is the spread between runs of the same
config, if any config was run twice. The file has no learning curves and almost no times.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import MAX_VALUES, RealRange, Scale, WholeRange
from autoresearch.values import Scalar
from trajectory.confirmed import NOTHING_YET, finding
from trajectory.formats.foreign import ForeignRun, Plain
from trajectory.formats.imported import ImportedCampaign
from trajectory.formats.standings import ForeignConfig, Standings
from trajectory.reading import Reign
from trajectory.report.details import Change, DetailBook, Details, cell
from trajectory.report.findings import About, Best, Findings, Stops
from trajectory.report.reading.iterations import Iteration, Outcome, Spent
from trajectory.report.reading.knobs import ReportedKnob, Sample
from trajectory.report.wording import label, shown
from trajectory.statistics.standings import Standing, baseline_estimate

BEST = 10
MAX_BITS = 64
"""Most bits of an integer that is still shown and binned as an integer."""
LOG_RATIO = 30.0
"""A range whose ends have a greater ratio is cut into bins on a log scale."""


def read_foreign_campaign(campaign: ImportedCampaign) -> Findings:
    """Return the findings of an imported campaign."""
    runs = [run for run in campaign.runs if run.status != "paused"]
    iterations = [_iteration(run) for run in runs if not _is_calibration(run)]
    standings = Standings.of(campaign.runs)
    ranked = standings.top(len(standings.configs))
    noise, baseline, population = standings.noise, standings.baseline, standings.population
    incumbent = next((run for run in reversed(runs) if run.action == "keep"), None)
    book = DetailBook()
    for run in runs:
        if not _is_calibration(run):
            book.add(_details(run, standings))
    about = _about(campaign)
    best = tuple(_best(standing, standings) for standing in ranked[:BEST])
    headline = NOTHING_YET
    if best and baseline is None:
        headline = "Nothing to compare with: the source names no baseline"
    elif best:
        first = best[0]
        headline = finding(about.scoring, None, first.delta, first.delta_lo, first.delta_hi)
    reigns = [Reign(0, baseline.key)] if baseline else []
    for run in runs:
        if run.action == "keep" and run.config_key:
            reigns.append(Reign(run.iter, run.config_key))
    return Findings(
        about=about,
        finding=headline,
        iterations=tuple(iterations),
        noise=noise,
        shrunk=population is not None,
        baseline=baseline_estimate(baseline, noise, population) if baseline else None,
        best=best,
        reigns=tuple(reigns),
        believed={one.entry.key: one.objective for one in ranked},
        knobs=tuple(_knobs(runs, standings)),
        samples=tuple(
            Sample(_values(c.values), c.mean if c.n else None) for c in standings.configs.values()
        ),
        incumbent=_values(incumbent.values) if incumbent else {},
        stops=_stops(runs),
        details=book.chunks,
    )


def _is_calibration(run: ForeignRun) -> bool:
    return run.is_baseline and run.iter == 0


def _iteration(run: ForeignRun) -> Iteration:
    return Iteration(
        iter=run.iter,
        kind="",
        outcome=_outcome(run),
        config_hash=run.config_key,
        changed=_values(run.changes),
        described=_described(run.name, run.reason),
        mean=run.score,
        runs=1,
        delta=None,
        stderr=None,
        spent=Spent(),
        energy_wh=None,
    )


def _described(name: str | None, reason: str) -> str:
    """Return a commit and its author's reason; empty if the source gives configs."""
    return f"{name} {reason}".strip() if name else ""


def _outcome(run: ForeignRun) -> Outcome:
    if run.status == "measured":
        return "keep" if run.action == "keep" else "discard"
    return "failed" if run.status == "failed" else "refused"


def _values(values: Mapping[str, Plain] | None) -> dict[str, Scalar]:
    """Return the known values, under names that are safe to show."""
    found: dict[str, Scalar] = {}
    for name, value in (values or {}).items():
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            found[label(name)] = f"{value:.3e}" if value.bit_length() < 1024 else "beyond any float"
        elif value is not None:
            found[label(name)] = value
    return found


def _about(campaign: ImportedCampaign) -> About:
    source = campaign.provenance
    first = next((run.at for run in campaign.runs if run.at), "")
    facts = [*source.facts]
    if source.accept_delta_frac is not None:
        facts.append(
            ("kept", f"what gained {source.accept_delta_frac:.2%} of the baseline's score")
        )
    return About(
        title=campaign.directory.name,
        campaign_id="",
        begun=first or "",
        source=f"{source.source}, imported {source.imported_at}",
        measure=source.measure,
        facts=tuple(facts),
        caution=(
            "Another tool measured this, and its file names no seeds: nothing is paired, the "
            "other tool decided what to keep, and the noise is estimated from repeated runs of a "
            "config."
        ),
        paired=False,
        pauses=sum(run.status == "paused" for run in campaign.runs),
    )


def _best(standing: Standing[ForeignConfig], standings: Standings) -> Best:
    entry, baseline = standing.entry, standings.baseline
    base = _values(baseline.values) if baseline else {}
    return Best.of(
        standing,
        _values(entry.values) or {**base, **_values(entry.changes)},
        base,
        name=_described(entry.name, entry.reason),
        is_baseline=entry.is_baseline,
        train_s=None,
    )


def _knobs(runs: Sequence[ForeignRun], standings: Standings) -> list[ReportedKnob]:
    """Return every field that differed, each with the values seen or the range that they span."""
    seen: dict[str, set[Scalar]] = {}
    for config in standings.configs.values():
        for name, value in _values(config.values).items():
            seen.setdefault(name, set()).add(value)
    proposed = {name for run in runs for name in _values(run.changes)}
    default = _values(standings.baseline.values) if standings.baseline else {}
    return [
        ReportedKnob(name, _domain(values), default.get(name))
        for name, values in seen.items()
        if len(values) > 1 or name in proposed
    ]


def _domain(values: set[Scalar]) -> Domain:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        ordered = sorted(values, key=lambda value: (isinstance(value, str), str(value)))
        return Choices(choices=tuple(ordered))
    if len(values) <= MAX_VALUES:
        return Ladder(choices=tuple(sorted(numbers)))
    low, high = min(numbers), max(numbers)
    is_log = low > 0 and math.log(high / low) > math.log(LOG_RATIO)
    scale: Scale = "log" if is_log else "linear"
    if isinstance(low, int) and all(isinstance(value, int) for value in numbers):
        return WholeRange(low=low, high=int(high), scale=scale)
    return RealRange(low=low, high=high, scale=scale)


def _stops(runs: Sequence[ForeignRun]) -> Stops:
    seen: set[str] = set()
    repeats = 0
    for run in runs:
        key = run.config_key
        if run.status in {"measured", "failed"} and key is not None:
            repeats += key in seen and not _is_calibration(run)
            seen.add(key)
    refused = Counter(
        shown(run.rail or run.status)[:32] for run in runs if _outcome(run) == "refused"
    )
    failed = sum(run.status == "failed" for run in runs)
    return Stops(
        repeats=repeats,
        refusals=dict(refused.most_common(10)) or {"refused": 0},
        failures={"failed": failed},
        trials=sum(run.status in {"measured", "failed"} for run in runs),
    )


def _details(run: ForeignRun, standings: Standings) -> Details:
    before = _values(standings.baseline.values) if standings.baseline else {}
    verdict = f"refused by {run.rail}: {run.why}" if run.rail else run.why
    metrics = [f"{name} {cell(value)}" for name, value in _values(run.metrics).items()]
    return Details(
        at=shown(run.at or ""),
        reason=shown(run.reason),
        verdict=shown(verdict),
        decision="" if run.action == "none" else f"the source says: {run.action}",
        proposer="",
        notes=tuple(shown(metric) for metric in metrics),
        changes=tuple(
            Change(name=shown(name), before=cell(before.get(name)), after=cell(value))
            for name, value in _values(run.changes).items()
        ),
        trials=(),
        replies=(),
        config=shown(run.name or run.config_key or ""),
    )
