"""What follows a row and holds up no lane: its index, its file, and who is told.

A row is on disk before anything else goes on, since whatever is decided next may rest on it. The
rest can wait until every lane has a trial again: an index catches up with its journal whenever it
is opened, and a file whose iteration has a row is cleared away. So a kill in between costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.search.iterations.pending import PendingFiles
from agent.search.scribe import Scribe
from trajectory.rows import IterationRow


@dataclass(slots=True)
class Afterwards:
    """Of one sitting's iterations."""

    scribe: Scribe
    files: PendingFiles
    tell: Callable[[IterationRow], None]
    _rows: deque[IterationRow] = field(default_factory=deque)

    def write(self, row: IterationRow) -> None:
        """Its row, which counts from now on.

        :raises MachineryError: where the journal cannot be written.
        """
        self.scribe.write(row)
        self._rows.append(row)

    def catch_up(self) -> None:
        """All that is left to be done.

        :raises MachineryError: where the campaign's directory cannot be written.
        """
        if self._rows:
            self.scribe.index()
        while self._rows:
            row = self._rows.popleft()
            self.files.clear(row.iter)
            self.tell(row)
