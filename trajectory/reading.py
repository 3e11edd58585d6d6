"""What a campaign has come to, read by the shorter way: its journal, or the index of it.

A journal of some megabytes is read and added up before the libraries of a database are loaded, and
it never lags. A longer one is what the index is for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from autoresearch.closing import Closing
from trajectory import ranking
from trajectory.evidence import Evidence, Tally, Unranked
from trajectory.journal import read_records
from trajectory.ranking import Ranked
from trajectory.rows import (
    CalibratedRow,
    CampaignRow,
    ConfirmedRow,
    FinalistsRow,
    Row,
    StressRow,
)

SHORT_BYTES = 8 << 20
"""About three thousand iterations, read in a quarter of a second."""

Kind = TypeVar("Kind", CampaignRow, StressRow, FinalistsRow, ConfirmedRow, CalibratedRow)
_KEPT = (CampaignRow, StressRow, FinalistsRow, ConfirmedRow, CalibratedRow)


class Reading(Closing, Protocol):
    """What is known of a campaign; a context manager."""

    note: str | None
    """One sentence on why it may be behind; None where all is as it should be."""

    @property
    def tally(self) -> Tally: ...
    def campaign(self) -> CampaignRow | None: ...
    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]: ...
    def top(self, k: int) -> list[Ranked]: ...
    def unranked(self) -> Unranked: ...


def read_campaign(journal: Path, index: Callable[[], str | Path]) -> Reading:
    """The campaign of this journal, as it stands.

    :param index: where the history is, asked for a long journal only.
    :raises JournalError: where the journal is read and damaged.
    :raises HistoryError: where the history is read and cannot be reached.
    """
    if journal.stat().st_size <= SHORT_BYTES:
        return JournalReading(journal)
    from trajectory.history.store import History  # noqa: PLC0415 (a third of a second to load)

    return History.open(index(), journal, readonly=True)


class JournalReading(Closing):
    """Everything from the journal itself, row by row; a last line in the making is left out."""

    note: str | None = None

    def __init__(self, journal: Path) -> None:
        self._evidence = Evidence()
        self._rows: list[Row] = []
        """But for the short runs, which the evidence has."""
        for record in read_records(journal):
            self._evidence.add(record.row)
            if isinstance(record.row, _KEPT):
                self._rows.append(record.row)

    @property
    def tally(self) -> Tally:
        """The sums of the evidence."""
        return self._evidence.tally

    def campaign(self) -> CampaignRow | None:
        """The campaign's own row; None in an empty journal."""
        return next(iter(self.newest(CampaignRow)), None)

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """The rows of one kind, the newest first."""
        return [row for row in reversed(self._rows) if isinstance(row, kind)][:limit]

    def top(self, k: int) -> list[Ranked]:
        """The ``k`` best configs by posterior mean; see :mod:`trajectory.ranking`."""
        return ranking.top(self._evidence, k)

    def unranked(self) -> Unranked:
        """The measured configs that :meth:`top` has no place for."""
        return Unranked.of(self._evidence)

    def close(self) -> None:
        """Let go of nothing: the journal was read and is shut."""
        return
