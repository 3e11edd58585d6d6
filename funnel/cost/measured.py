"""Collect measured evidence on the search's worth, beside the wrong-pick rates, which are
assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Finite, Frozen, PositiveInt
from funnel.ladder.candidates import best_finalist
from funnel.ladder.lead import Lead
from funnel.ladder.result import LadderResult, read_ladder, read_ladder_of
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.longruns import RankingTest, ranking_test
from trajectory.rows import FinalistsRow, StressRow


class Concordance(Frozen):
    """Probability that the better of two configs by short runs is also the better by long ones."""

    value: Finite
    lo: Finite
    hi: Finite
    """Upper end of the 95 % interval."""
    configs: PositiveInt
    long_steps: PositiveInt


class Measured(Frozen):
    """Measured evidence on the search's worth; None for what was not measured."""

    concordance: Concordance | None = None
    lead: str | None = None
    """A sentence on the winner's lead over the baseline on the ladder."""

    @classmethod
    def of(cls, test: RankingTest | None, ladder: LadderResult | None) -> Measured:
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


def measured_of(directory: Path) -> Measured:
    """Return the evidence in a campaign's journal.

    The ladder is that of the latest stress test's best config, or the latest ladder if there was no
    stress test.
    """
    rows = list(read_rows(directory / JOURNAL_FILE))
    best = best_finalist(rows)
    ladder = read_ladder_of(*best, directory) if best else read_ladder(directory)
    ended = [row for row in reversed(rows) if isinstance(row, FinalistsRow)]
    if not ended:
        return Measured.of(None, ladder)
    evidence = Evidence()
    for row in rows:
        evidence.add(row)
    stress = [row for row in reversed(rows) if isinstance(row, StressRow)]
    ranked = ranking.top(evidence, len(evidence.configs))
    return Measured.of(ranking_test(ranked, stress, ended), ladder)


def lead_sentence(lead: Lead) -> str:
    """Return a sentence on the lead of a ladder's winner."""
    trend = "does not clearly grow or melt" if lead.trend == "unclear" else lead.trend
    return (
        f"on the ladder the winner led the baseline by {lead.at_largest_bpb:.4f} bits per byte "
        f"({lead.at_largest_low:.4f} to {lead.at_largest_high:.4f}) at the largest rung, and the "
        f"lead {trend}: {lead.per_tenfold_bpb:+.4f} ({lead.per_tenfold_low:+.4f} to "
        f"{lead.per_tenfold_high:+.4f}) for every tenfold of compute"
    )
