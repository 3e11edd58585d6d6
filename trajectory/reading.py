"""Read a campaign's results from its journal if that is short, otherwise from its index.

Reading a journal of a few megabytes is faster than loading the database libraries, and its results
are never outdated. The index serves longer journals. The live page and the report need more than
both: they add the journal's rows to a :class:`CampaignState`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from autoresearch.closing import Closing, gc_paused
from trainer.spec import TrialFailed
from trajectory import ranking
from trajectory.confirmed import Confirmed
from trajectory.evidence import Evidence, Tally
from trajectory.journal import read_records
from trajectory.ranking import Ranked, Unranked
from trajectory.rows import (
    BaselineRow,
    CalibratedRow,
    CampaignRow,
    ConfirmedRow,
    FinalistsRow,
    IterationRow,
    Row,
    RowOfOneRun,
    StressRow,
    trials_of,
)
from trajectory.spending import BusyTime, LaneUse

SHORT_BYTES = 8 << 20
"""Largest journal to read directly: about three thousand iterations, in a quarter of a second."""

Kind = TypeVar("Kind", CampaignRow, StressRow, FinalistsRow, ConfirmedRow, CalibratedRow)
_KEPT = (CampaignRow, StressRow, FinalistsRow, ConfirmedRow, CalibratedRow)


class Reading(Closing, Protocol):
    """Read access to a campaign's results; a context manager."""

    note: str | None
    """One sentence on why the results may be outdated; None if they are complete."""

    @property
    def tally(self) -> Tally: ...
    def campaign(self) -> CampaignRow | None: ...
    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]: ...
    def top(self, k: int) -> list[Ranked]: ...
    def unranked(self) -> Unranked: ...


def read_campaign(journal: Path, index: Callable[[], str | Path]) -> Reading:
    """Return read access to the current state of a journal's campaign.

    :param index: returns the location of the history; called only for a long journal.
    :raises JournalError: if the journal is read and damaged.
    :raises HistoryError: if the history is read and cannot be reached.
    """
    if journal.stat().st_size <= SHORT_BYTES:
        return JournalReading(journal)
    from trajectory.history.store import History  # noqa: PLC0415 (a third of a second to load)

    return History.open(index(), journal, readonly=True)


class JournalReading(Closing):
    """Results computed from the journal itself, row by row; an incomplete last line is skipped."""

    note: str | None = None

    def __init__(self, journal: Path) -> None:
        self.evidence = Evidence()
        self._rows: list[Row] = []
        """Rows of the kinds in ``_KEPT``, in the journal's order; the evidence covers short
        runs."""
        with gc_paused():
            for record in read_records(journal):
                self.evidence.add(record.row)
                if isinstance(record.row, _KEPT):
                    self._rows.append(record.row)

    @property
    def tally(self) -> Tally:
        """Sums of the evidence."""
        return self.evidence.tally

    def campaign(self) -> CampaignRow | None:
        """Return the campaign's own row; None for an empty journal."""
        return next(iter(self.newest(CampaignRow)), None)

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """Return the rows of one kind, newest first."""
        return [row for row in reversed(self._rows) if isinstance(row, kind)][:limit]

    def top(self, k: int) -> list[Ranked]:
        """Return the ``k`` best configs by posterior mean; see :mod:`trajectory.ranking`."""
        return ranking.top(self.evidence, k)

    def unranked(self) -> Unranked:
        """Count the measured configs that :meth:`top` does not rank."""
        return Unranked.of(self.evidence)

    def close(self) -> None:
        """Do nothing: the journal is already closed."""
        return


@dataclass(frozen=True, slots=True)
class Reign:
    """A config, and the iteration since which it was the incumbent; 0 for the baseline."""

    iter: int
    config_hash: str


class CampaignState:
    """Sums over a campaign's rows, which are added one at a time."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self.reigns: list[Reign] = []
        """Each incumbent so far, in order."""
        self.confirmed: list[Confirmed] = []
        """Results of confirmations, the oldest first."""
        self.trials = 0
        """Trials of baselines and iterations."""
        self.failures: Counter[str] = Counter()
        """Those of them that ended without a score, by status."""
        self.lane_use = LaneUse()
        self._busy = BusyTime()

    def add(self, row: Row) -> float:
        """Add the next row, and return the seconds that its trials add to the campaign's active
        time, in which simultaneous trials count once."""
        active_s = 0.0
        if isinstance(row, BaselineRow | IterationRow | RowOfOneRun):
            active_s = self._busy.added_s(row)
        if isinstance(row, BaselineRow | IterationRow):
            results = [trial.result for trial in trials_of(row)]
            self.trials += len(results)
            self.failures.update(one.status for one in results if isinstance(one, TrialFailed))
        if isinstance(row, IterationRow):
            self.lane_use.add(row, active_s)
        elif isinstance(row, ConfirmedRow):
            self.confirmed.append(row.found)
        self.evidence.add(row)
        incumbent = self.evidence.incumbent_hash
        if incumbent and (not self.reigns or self.reigns[-1].config_hash != incumbent):
            number = row.iter if isinstance(row, IterationRow) else 0
            if self.reigns:  # with lanes, a later incumbent may have a lower iteration
                number = max(number, self.reigns[-1].iter)
            self.reigns.append(Reign(number, incumbent))
        return active_s
