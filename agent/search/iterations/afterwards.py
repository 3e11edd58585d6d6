"""Finish what follows a row and delays no lane: its index, its file, and the watcher's report.

A row is on disk before anything else happens, since later decisions may depend on it. The rest
waits until every lane has a trial again. A kill in between costs nothing: an index catches up with
its journal when opened, and the file of an iteration with a row is removed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from agent.search.iterations.pending import PendingFiles
from agent.search.scribe import Scribe
from agent.search.watcher import Watcher
from trajectory.queue import ProposalQueue
from trajectory.rows import IterationRow


@dataclass(slots=True)
class Afterwards:
    """Deferred work after the rows of one session."""

    scribe: Scribe
    files: PendingFiles
    queue: ProposalQueue
    watcher: Watcher
    _rows: deque[IterationRow] = field(default_factory=deque)

    def write(self, row: IterationRow) -> None:
        """Write a row, which counts from now on.

        :raises MachineryError: if the journal cannot be written.
        """
        self.scribe.write(row)
        self._rows.append(row)

    def catch_up(self) -> None:
        """Do all deferred work.

        :raises MachineryError: if the campaign's directory cannot be written.
        """
        if self._rows:
            self.scribe.index()
        while self._rows:
            row = self._rows.popleft()
            self.files.clear(row.iter)
            if row.proposer.queue_id:
                self.queue.clear(row.proposer.queue_id)
            self.watcher.iteration_ended(row)
