"""What was measured of the search's worth, beside the wrong-pick rates that nobody has measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Finite, Frozen, PositiveInt
from funnel.ladder.finalist import best_finalist
from funnel.ladder.lead import Lead
from funnel.ladder.result import LadderResult, read_ladder, read_ladder_of
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.longruns import RankingTest, ranking_test
from trajectory.rows import FinalistsRow, StressRow


class Concordance(Frozen):
    """Probability that of two configs the better by short runs is the better by long ones."""

    value: Finite
    lo: Finite
    hi: Finite
    """The 95 % interval's."""
    configs: PositiveInt
    long_steps: PositiveInt


class Measured(Frozen):
    """None where nothing was measured."""

    concordance: Concordance | None = None
    lead: str | None = None
    """What the ladder found of the winner's lead over the baseline, in a sentence."""

    @classmethod
    def of(cls, test: RankingTest | None, ladder: LadderResult | None) -> Measured:
        """Take what a test of the ranking and a ladder found."""
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
        """Yield a sentence each, without its full stop, also for what was not measured."""
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
    """Return what a campaign's journal has of both; of ladders that of the best of the latest
    stress test, or the latest ladder where there was no stress test."""
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
    """Say what a ladder found of its winner's lead."""
    course = "cannot be told to grow or melt" if lead.course == "unclear" else lead.course
    return (
        f"on the ladder the winner led the baseline by {lead.at_largest_bpb:.4f} bits per byte "
        f"({lead.at_largest_low:.4f} to {lead.at_largest_high:.4f}) at the largest rung, and the "
        f"lead {course}: {lead.per_tenfold_bpb:+.4f} ({lead.per_tenfold_low:+.4f} to "
        f"{lead.per_tenfold_high:+.4f}) for every tenfold of compute"
    )
