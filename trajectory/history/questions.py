"""Define the queries that every index of a journal answers."""

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
    """Queries about one campaign; each one uses a consistent state of the index."""

    @abstractmethod
    def _ask(self, query: Callable[[sa.Connection, Position], Answer]) -> Answer:
        """Run a query with a connection and the position of the index. It may be called more than
        once."""

    @property
    def position(self) -> Position:
        """Current position of the index in the journal."""
        return self._ask(lambda _, position: position)

    @property
    def tally(self) -> Tally:
        """Sums of the evidence, up to that position."""
        return self.position.tally

    def campaign(self) -> CampaignRow | None:
        """Return the campaign's own row; None for an empty history."""
        return next(iter(self.newest(CampaignRow, 1)), None)

    def iterations(self, limit: int | None = None) -> list[IterationRow]:
        """Return finished iterations, newest first."""
        return self.newest(IterationRow, limit)

    def events(self, limit: int | None = None) -> list[EventRow]:
        """Return the campaign's events, newest first."""
        return self.newest(EventRow, limit)

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """Return the rows of one kind, newest first."""
        return self._ask(lambda c, position: queries.newest(c, position, kind, limit))

    def trial_ids(self) -> set[str]:
        """Return the ids of all trials in any row, as measured, failed or interrupted."""
        return self._ask(queries.trial_ids)

    def measurements(self, config_hash: str) -> list[TrialRecord]:
        """Return a config's short runs that ended with a measurement."""
        return self._ask(lambda c, position: queries.measurements(c, position, config_hash))

    def evidence(self) -> Evidence:
        """Return all evidence: the sums over the journal's rows, without reading them."""
        return self._ask(queries.evidence)

    def top(self, k: int) -> list[Ranked]:
        """Return the ``k`` best configs by posterior mean; see :mod:`trajectory.ranking`."""
        return self._ask(lambda c, position: queries.top(c, position, k))

    def unranked(self) -> Unranked:
        """Count the measured configs that :meth:`top` does not rank."""
        return self._ask(queries.unranked)
