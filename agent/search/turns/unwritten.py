"""Rows that are decided and not written yet: written down off the lanes' path.

What was decided counts at once, for every race and proposal after it. Its row, the index and who
looks on can wait until every lane has a trial again, in the order of the decisions. A kill before
that loses nothing: the iteration is still in flight on disk, and its trials with it. One that was
proposed meanwhile against what only the lost row would have kept is proposed anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.search.campaign import Campaign
from agent.search.scribe import Scribe
from agent.search.turns.pending import PendingFiles
from trajectory.rows import ITERATION_SCHEMA, LANES_SCHEMA, IterationRow


@dataclass(slots=True)
class Unwritten:
    """The rows of one sitting's iterations, until they are on disk."""

    campaign: Campaign
    scribe: Scribe
    files: PendingFiles
    before: Callable[[IterationRow], None]
    """Told each row before it is written."""
    tell: Callable[[IterationRow], None]
    """Told each row once it is written."""
    _rows: deque[IterationRow] = field(default_factory=deque)
    _is_refused: bool = False
    """Whether the disk refused one: those after it may speak of what it kept, so they stay in
    flight with it."""

    def decided(self, row: IterationRow) -> None:
        """It counts from now on."""
        self.campaign.evidence.add(row)
        self._rows.append(row)

    def write(self) -> None:
        """Write what there is. What fails once is not tried again in this sitting.

        :raises MachineryError: where the journal cannot be written.
        """
        while self._rows and not self._is_refused:
            self._is_refused = True
            row = self._rows.popleft()
            self.before(row)
            self.scribe.announce_format(ITERATION_SCHEMA if row.lanes is None else LANES_SCHEMA)
            self.scribe.record(row, is_known=True)
            self.files.clear(row.iter)
            self._is_refused = False
            self.tell(row)
