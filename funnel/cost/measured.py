"""Count the time and energy of a search, and collect measured evidence on its worth.

The wrong-pick rates beside that evidence are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, PrivateAttr

from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.program import quote
from autoresearch.values import Finite, Frozen, PositiveInt
from funnel.cost.rates import Rates
from funnel.ladder.lead import Lead
from funnel.ladder.plan import best_finalist
from funnel.ladder.result import LadderResult, read_ladder
from trainer.schema import TrialOk
from trajectory import ranking
from trajectory.journal import read_rows
from trajectory.longruns import RankingTest, ranking_test
from trajectory.reading import Results
from trajectory.rows import BaselineRow, FinalistsRow, IterationRow, Row, RowOfOneRun, StressRow
from trajectory.spending import BusyTime

WH_PER_KWH = 1000
SECONDS_PER_HOUR = 3600
SUPPOSED = "rates"


class SearchUsage(BaseModel):
    """Seconds and energy of a search. Long runs (the stress test, the ladder) are counted
    separately."""

    source: str
    """:data:`SUPPOSED`, or the campaign's directory."""
    machine: str | None = None
    """Name of the device that trained."""
    iterations: int = 0
    iterations_s: float = 0.0
    """Seconds of the iterations, from proposal to decision."""
    iterations_kwh: float = 0.0
    baseline_s: float = 0.0
    baseline_kwh: float = 0.0
    stress_runs: int = 0
    """All runs outside the search."""
    stress_s: float = 0.0
    stress_kwh: float = 0.0
    metered_s: float = 0.0
    """Seconds of all of these whose energy was measured; in the rest the machine is assumed to draw
    SPARK_KW."""
    _busy: BusyTime = PrivateAttr(default_factory=BusyTime)

    def add(self, row: Row, spark_kw: float) -> None:
        """Count a row; ignore one that took no machine time."""
        if not isinstance(row, BaselineRow | IterationRow | RowOfOneRun):
            return
        wall_s, energy_wh = self._busy.added_s(row), None
        if not isinstance(row, BaselineRow):
            energy_wh = row.energy_wh
        elif isinstance(row.trial.result, TrialOk):
            self.machine, energy_wh = row.trial.result.device, row.trial.result.energy_wh
        kwh = wall_s / SECONDS_PER_HOUR * spark_kw
        if energy_wh is not None:
            kwh = energy_wh / WH_PER_KWH
            self.metered_s += wall_s
        if isinstance(row, BaselineRow):
            self.baseline_s += wall_s
            self.baseline_kwh += kwh
        elif isinstance(row, IterationRow):
            self.iterations += 1
            self.iterations_s += wall_s
            self.iterations_kwh += kwh
        else:
            self.stress_runs += 1
            self.stress_s += wall_s
            self.stress_kwh += kwh

    @property
    def iter_s(self) -> float:
        """Mean seconds of an iteration; 0 without iterations."""
        return self.iterations_s / self.iterations if self.iterations else 0.0

    @property
    def seconds(self) -> float:
        """All seconds, including the long runs'."""
        return self.baseline_s + self.iterations_s + self.stress_s

    @property
    def kwh(self) -> float:
        return self.baseline_kwh + self.iterations_kwh + self.stress_kwh

    def lines(self) -> tuple[str, ...]:
        """Return lines for the user on the source of these seconds and this energy."""
        if self.source == SUPPOSED:
            return ("source    the rates: no campaign was measured (see --campaign)",)
        runs = (
            f", long runs ({self.stress_runs}) {self.stress_s:,.1f} s" if self.stress_runs else ""
        )
        return (
            f"source    {self.source} · {self.machine or 'unknown machine'}",
            f"measured  {self.seconds:,.1f} s: {self.iterations} iterations "
            f"{self.iterations_s:,.1f} s, baseline {self.baseline_s:,.1f} s{runs}",
            f"energy    {self.kwh:.4g} kWh, of it metered {self.metered_s:,.0f} of "
            f"{self.seconds:,.0f} s",
        )

    @classmethod
    def supposed(cls, rates: Rates) -> SearchUsage:
        """Assume ``CAMPAIGN_ITERS`` iterations of ``ITER_SECONDS`` at ``SPARK_KW``."""
        seconds = rates.campaign_iters * rates.iter_seconds
        return cls(
            source=SUPPOSED,
            iterations=rates.campaign_iters,
            iterations_s=seconds,
            iterations_kwh=seconds / SECONDS_PER_HOUR * rates.spark_kw,
        )


def measured_usage(directory: Path, rates: Rates) -> SearchUsage:
    """Return the usage of the campaign in this directory so far, from its own rows.

    :raises CampaignError: if it has no complete iteration.
    """
    usage = SearchUsage(source=str(directory))
    for row in read_rows(directory / JOURNAL_FILE):
        usage.add(row, rates.spark_kw)
    if usage.iterations == 0:
        raise CampaignError(
            f"{directory} has no finished iteration to take seconds from; resume it with: "
            f"autoresearch loop --campaign {quote(directory)}"
        )
    return usage


class Concordance(Frozen):
    """Probability that the better of two configs by short runs is also the better by long ones."""

    value: Finite
    lo: Finite
    hi: Finite
    """Upper end of the 95 % interval."""
    configs: PositiveInt
    long_steps: PositiveInt


class SearchEvidence(Frozen):
    """Measured evidence on the search's worth; None for what was not measured."""

    concordance: Concordance | None = None
    lead: str | None = None
    """A sentence on the winner's lead over the baseline on the ladder."""

    @classmethod
    def of(cls, test: RankingTest | None, ladder: LadderResult | None) -> SearchEvidence:
        """Combine the results of a ranking test and a ladder."""
        concordance = None
        if test is not None and test.fidelity is not None:
            right, n = test.fidelity.concordance, test.fidelity.n
            concordance = Concordance(
                value=right.value, lo=right.lo, hi=right.hi, configs=n, long_steps=test.steps
            )
        return cls(
            concordance=concordance,
            lead=lead_sentence(ladder.lead) if ladder and ladder.lead else None,
        )

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each quantity, without a full stop, even if it was not measured."""
        found = self.concordance
        if found is None:
            yield "rank fidelity was not measured; autoresearch stress --spread 6 does"
        else:
            yield (
                "of two configs the better by short runs was the better at "
                f"{found.long_steps:,} steps {found.value:.0%} of the time ({found.lo:.0%} to "
                f"{found.hi:.0%}, {found.configs} configs); a coin gives 50 %"
            )
        yield self.lead or (
            "whether the winner's lead lasts as it grows was not measured; autoresearch ladder does"
        )


def measured_of(directory: Path) -> SearchEvidence:
    """Return the evidence in a campaign's journal.

    The ladder is that of the latest stress test's best config, or the latest ladder if there was no
    stress test.
    """
    results = Results(directory / JOURNAL_FILE)
    best = best_finalist(results)
    ladder = read_ladder(directory, of=best)
    ended = results.newest(FinalistsRow)
    if not ended:
        return SearchEvidence.of(None, ladder)
    ranked = ranking.top(results.evidence, len(results.evidence.configs))
    return SearchEvidence.of(ranking_test(ranked, results.newest(StressRow), ended), ladder)


def lead_sentence(lead: Lead) -> str:
    """Return a sentence on the lead of a ladder's winner."""
    trend = "does not clearly grow or shrink" if lead.trend == "unclear" else lead.trend
    return (
        f"on the ladder the winner led the baseline by {lead.at_largest_bpb:.4f} bits per byte "
        f"({lead.at_largest_low:.4f} to {lead.at_largest_high:.4f}) at the largest rung, and the "
        f"lead {trend}: {lead.per_tenfold_bpb:+.4f} ({lead.per_tenfold_low:+.4f} to "
        f"{lead.per_tenfold_high:+.4f}) for every tenfold of compute"
    )
