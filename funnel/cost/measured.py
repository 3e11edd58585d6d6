"""What was measured of the search's worth, beside the wrong-pick rates that nobody has measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from trajectory.rows import FinalistsRow, Row, StressRow


class Concordance(Frozen):
    """Of two configs the better by short runs is the better by long ones with this probability."""

    value: Finite
    lo: Finite
    hi: Finite
    """The 95 % interval's."""
    configs: PositiveInt
    long_steps: PositiveInt


class Measured(Frozen):
    """None of what was not."""

    concordance: Concordance | None = None
    lead: str | None = None
    """What the ladder found of the winner's lead over the baseline, in a sentence."""

    def lines(self) -> Iterator[str]:
        """A sentence each, without its full stop; what was not measured is said, too."""
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


def concordance_of(test: RankingTest | None) -> Concordance | None:
    """What the test of a ranking comes to; None where there is none, or too few configs."""
    if test is None or test.fidelity is None:
        return None
    right = test.fidelity.concordance
    return Concordance(
        value=right.value,
        lo=right.lo,
        hi=right.hi,
        configs=test.fidelity.n,
        long_steps=test.steps,
    )


def measured_of(directory: Path) -> Measured:
    """What a campaign's journal has of both; of ladders that of the best of the latest stress test,
    and the latest where there was none."""
    rows = list(read_rows(directory / JOURNAL_FILE))
    best = best_finalist(rows)
    ladder = read_ladder_of(*best, directory) if best else read_ladder(directory)
    return Measured(concordance=_concordance(rows), lead=lead_of(ladder))


def _concordance(rows: Sequence[Row]) -> Concordance | None:
    evidence = Evidence()
    stress: list[StressRow] = []
    ended: list[FinalistsRow] = []
    for row in rows:
        evidence.add(row)
        if isinstance(row, StressRow):
            stress.insert(0, row)
        elif isinstance(row, FinalistsRow):
            ended.insert(0, row)
    if not ended:
        return None
    ranked = ranking.top(evidence, len(evidence.configs))
    return concordance_of(ranking_test(ranked, stress, ended))


def lead_sentence(lead: Lead) -> str:
    """For the bill."""
    course = "cannot be told to grow or melt" if lead.course == "unclear" else lead.course
    return (
        f"on the ladder the winner led the baseline by {lead.at_largest_bpb:.4f} bits per byte "
        f"({lead.at_largest_low:.4f} to {lead.at_largest_high:.4f}) at the largest rung, and the "
        f"lead {course}: {lead.per_tenfold_bpb:+.4f} ({lead.per_tenfold_low:+.4f} to "
        f"{lead.per_tenfold_high:+.4f}) for every tenfold of compute"
    )


def lead_of(ladder: LadderResult | None) -> str | None:
    """What a ladder found of its winner's lead; None where it found nothing."""
    return None if ladder is None or ladder.lead is None else lead_sentence(ladder.lead)
