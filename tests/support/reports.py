"""Provide campaigns to report on, without training anything."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from autoresearch.domains.choices import Choices
from autoresearch.domains.ranges import RealRange, WholeRange
from funnel.cost.bill import search_bill
from funnel.cost.measured import SearchUsage
from funnel.cost.rates import Rates
from tests.support.configs import config
from tests.support.places import ROOT
from tests.support.rows import (
    Simulator,
    at,
    baseline_row,
    campaign_row,
    failed,
    iteration_row,
    ok,
    stress_row,
    trial,
    write_journal,
)
from trainer.schema import gpt
from trajectory.proposals import Attempt, ProposerRecord, Verdict
from trajectory.report.findings import Findings, ReportedKnob, read_findings
from trajectory.report.iterations import CurveReader
from trajectory.rows import CampaignRow, Decision, FinalistsRow, IterationRow, Row

MENU = (ROOT / "agent" / "menu" / "shipped" / "cpu-tiny.toml").read_text("utf-8")
KNOBS = (
    ReportedKnob("lr", RealRange(low=1e-4, high=1e-2, scale="log"), 1e-3),
    ReportedKnob("beta2", RealRange(low=0.8, high=0.999), 0.95),
    ReportedKnob("n_layer", WholeRange(low=2, high=6), 4),
    ReportedKnob("activation", Choices(choices=("gelu", "swiglu")), "gelu"),
    ReportedKnob("tie_embeddings", Choices(choices=(True, False)), True),
)

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg onload=\"document.title='owned'\"><a xlink:href='javascript:alert(1)'>x</a></svg>",
    "{{ 7 * 7 }}{% raw %} ${document.title='owned'} $\\frac{1}{2}$ \\x3cscript\\x3e",
    "line\u2028separator\u2029and\u0000nul\x1b[31m",
    "\u202egnp.exe\u2066 zero\u200bwidth \U000e0041tag",
    '"><base href=//evil.example><meta http-equiv=refresh content=0;url=//evil.example>',
    "<!--<script>--> ]]> &lt;b&gt; <style>*{display:none}</style>",
)


def with_menu(rows: Iterable[Row], menu: str = MENU) -> Iterator[Row]:
    """Yield the rows, with a menu that can be read in the campaign's row."""
    for row in rows:
        yield row.model_copy(update={"menu_toml": menu}) if isinstance(row, CampaignRow) else row


def simulated(iterations: int, seed: int = 0) -> list[Row]:
    """Return a campaign of the simulator's."""
    return list(with_menu(Simulator(seed).rows(iterations)))


def findings(
    folder: Path,
    rows: Iterable[Row],
    read: CurveReader = lambda _: (),
    rates: Rates | None = None,
) -> Findings:
    """Return a report's findings in these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    write_journal(folder / "trajectory.jsonl", iter(rows))
    rates = rates or Rates()
    usage = SearchUsage(source="the journal")
    return read_findings(
        folder / "trajectory.jsonl",
        KNOBS,
        lambda config: {knob.name: config.value(knob.name) for knob in KNOBS},
        read,
        lambda row: usage.add(row, rates.spark_kw),
        lambda: search_bill(rates, usage),
    )


def hostile_rows(texts: Iterable[str] = HOSTILE) -> Iterator[Row]:
    """Yield a campaign in which every field that others may write holds one of these texts."""
    yield from with_menu(
        [campaign_row().model_copy(update={"menu_name": HOSTILE[0], "sandbox": HOSTILE[1]})]
    )
    for seed in range(5):
        yield baseline_row(seed + 1, 4.27 + 0.01 * seed, seed)
    for number, text in enumerate(texts, start=1):
        attempt = Attempt(
            raw=text,
            mode=text,
            finish_reason=text,
            error=text,
            verdict=Verdict(allowed=False, rail="schema", why=text),
            latency_s=0.5,
        )
        proposer = ProposerRecord(
            kind=text, model=text, attempts=(attempt,), fallback=text, overrode={text[:20]: text}
        )
        candidate = config(lr=1e-3 + number * 1e-4)
        bad = number % 3 == 0
        result = failed(text[:200]) if bad else ok(4.2)
        row = iteration_row(
            number,
            candidate,
            (trial(100 + number, candidate, 0, result),),
            changes={"lr": 1e-3 + number * 1e-4, text: text},
            reason=text,
            proposer=proposer,
            decision=_decision(text, measured=not bad),
        )
        yield row
    refused = Verdict(allowed=False, rail="range", why=HOSTILE[2])
    yield iteration_row(len(HOSTILE) + 1, None, changes={"lr": HOSTILE[0]}, verdict=refused)


def _decision(text: str, *, measured: bool) -> Decision:
    numbers: dict[str, Any] = {
        "estimate_objective": 4.2,
        "reference_objective": 4.27,
        "delta": -0.07,
        "stderr": 0.05,
        "pairs": 1,
    }
    return Decision(action="discard", explanation=text, **(numbers if measured else {}))


def stress_rows(rows: Iterable[Row], configs: int = 6) -> list[Row]:
    """Add a stress test to a campaign: its first configs, two seeds each, of which one diverges."""
    kept = list(rows)
    measured = [
        (gpt(row.config), row.decision.estimate_objective)
        for row in kept
        if isinstance(row, IterationRow) and row.config
        if row.decision.estimate_objective is not None
    ][:configs]
    found = [
        stress_row(
            900 + 10 * rank + seed,
            of,
            seed,
            short - 0.6 + seed / 1e3,
            outcome="diverges" if rank == configs else "survives",
            purpose="candidate" if rank == 1 else "spread",
            rank=rank,
        )
        for rank, (of, short) in enumerate(measured, start=1)
        for seed in (7, 8)
    ]
    spread = tuple(of.config_hash for of, _ in measured)
    return [*kept, *found, FinalistsRow(at=at(600), steps=1000, finalists=(), spread=spread)]
