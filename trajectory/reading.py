"""Read a campaign's results from its journal if that is short, otherwise from its index.

Reading a journal of a few megabytes is faster than loading the database libraries, and its results
are never outdated. The index serves longer journals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from autoresearch.closing import Closing, gc_paused
from trajectory import ranking
from trajectory.evidence import Evidence, Tally
from trajectory.journal import read_records
from trajectory.ranking import Ranked, Unranked
from trajectory.rows import (
    CalibratedRow,
    CampaignRow,
    ConfirmedRow,
    FinalistsRow,
    Row,
    StressRow,
)

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
        self._evidence = Evidence()
        self._rows: list[Row] = []
        """Rows of the kinds in ``_KEPT``, in the journal's order; the evidence covers short
        runs."""
        with gc_paused():
            for record in read_records(journal):
                self._evidence.add(record.row)
                if isinstance(record.row, _KEPT):
                    self._rows.append(record.row)

    @property
    def tally(self) -> Tally:
        """Sums of the evidence."""
        return self._evidence.tally

    def campaign(self) -> CampaignRow | None:
        """Return the campaign's own row; None for an empty journal."""
        return next(iter(self.newest(CampaignRow)), None)

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """Return the rows of one kind, newest first."""
        return [row for row in reversed(self._rows) if isinstance(row, kind)][:limit]

    def top(self, k: int) -> list[Ranked]:
        """Return the ``k`` best configs by posterior mean; see :mod:`trajectory.ranking`."""
        return ranking.top(self._evidence, k)

    def unranked(self) -> Unranked:
        """Count the measured configs that :meth:`top` does not rank."""
        return Unranked.of(self._evidence)

    def close(self) -> None:
        """Do nothing: the journal is already closed."""
        return
