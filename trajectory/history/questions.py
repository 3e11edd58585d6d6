"""What can be asked of an index of a journal, wherever it is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from trajectory.evidence import Evidence, Tally, Unranked
from trajectory.history import queries
from trajectory.history.indexing import Position
from trajectory.history.queries import Kind
from trajectory.ranking import Ranked
from trajectory.rows import CampaignRow, EventRow, IterationRow, TrialRecord

Answer = TypeVar("Answer")


class Questions(ABC):
    """One campaign's; each is answered from one moment of the index."""

    @abstractmethod
    def _ask(self, query: Callable[[sa.Connection, Position], Answer]) -> Answer:
        """What a query answers, given a connection and how far what it answers reaches. It may be
        asked more than once."""

    @property
    def position(self) -> Position:
        """How far it reaches, as the database has it now."""
        return self._ask(lambda _, position: position)

    @property
    def tally(self) -> Tally:
        """The sums of the evidence, as far as it reaches."""
        return self.position.tally

    def campaign(self) -> CampaignRow | None:
        """The campaign's own row; None in an empty history."""
        return next(iter(self.newest(CampaignRow, 1)), None)

    def iterations(self, limit: int | None = None) -> list[IterationRow]:
        """Finished iterations, the newest first."""
        return self.newest(IterationRow, limit)

    def events(self, limit: int | None = None) -> list[EventRow]:
        """What happened to the campaign, the newest first."""
        return self.newest(EventRow, limit)

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """The rows of one kind, the newest first."""
        return self._ask(lambda c, position: queries.newest(c, position, kind, limit))

    def trial_ids(self) -> set[str]:
        """The ids of every trial that is in some row, as measured, failed or interrupted."""
        return self._ask(queries.trial_ids)

    def measurements(self, config_hash: str) -> list[TrialRecord]:
        """Short runs of a config that ended with a measurement."""
        return self._ask(lambda c, position: queries.measurements(c, position, config_hash))

    def evidence(self) -> Evidence:
        """All that was measured: what the journal's rows add up to, without reading them."""
        return self._ask(queries.evidence)

    def top(self, k: int) -> list[Ranked]:
        """The ``k`` best configs by posterior mean; see :mod:`trajectory.ranking`."""
        return self._ask(lambda c, position: queries.top(c, position, k))

    def unranked(self) -> Unranked:
        """The measured configs that :meth:`top` has no place for."""
        return self._ask(queries.unranked)
