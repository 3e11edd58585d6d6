"""Write a campaign's rows, interruptions and pauses."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent.search.campaign import Campaign
from agent.search.iterations import PendingFiles
from agent.search.stopping import StopRequest, pause_requested
from agent.search.trial import OrphanedTrials, Watcher
from autoresearch import screen
from autoresearch.errors import AutoresearchError
from autoresearch.layout import PAUSE_FILE
from autoresearch.words import timestamp
from trajectory.queue import ProposalQueue
from trajectory.rows import SCHEMA, EventRow, IterationRow, Row

PAUSE_POLL_S = 1.0


@dataclass(slots=True)
class Scribe:
    """Writer of one campaign."""

    campaign: Campaign
    stop: StopRequest
    note: Callable[[str], None]
    """Tells a person."""
    on_pause: Callable[[str], None] = lambda _: None
    """Tells a person who is away."""
    _lags: bool = field(init=False, default=False)
    """Whether a lag of the index was reported."""
    _is_announced: bool = field(init=False, default=False)
    """Whether readers of older versions were warned of the rows of this version."""

    def record(self, row: Row) -> None:
        """Write one row and index it; signals do not cut it short.

        :raises MachineryError: if the journal cannot be written.
        """
        self.write(row)
        self.index()

    def write(self, row: Row) -> None:
        """Write a row to the journal, which must succeed before anything continues."""
        if not (self._is_announced or isinstance(row, EventRow)):
            self._is_announced = True
            self._announce_format()
        with self.stop.deferred():
            self.campaign.write(row)

    def index(self) -> None:
        """Index all rows written since. A lagging index is reported once until it has caught up; a
        lost standard stream gets a row of its own."""
        for why in screen.losses():
            self.write(EventRow(at=timestamp(), event="note", why=why))
        with self.stop.deferred():
            trouble = self.campaign.index()
        if trouble is not None and not self._lags:
            self.note(trouble)
        self._lags = trouble is not None

    def take_note(self, why: str) -> None:
        """Record a note in the journal and show it."""
        self.record(EventRow(at=timestamp(), event="note", why=why))
        self.note(why)

    def stopped(self, error: Exception) -> None:
        """Record the error that ends the session, if the journal can still be written."""
        why = str(error) if isinstance(error, AutoresearchError) else f"a bug: {error!r}"
        with suppress(AutoresearchError):
            self._announce_format()
            self.record(EventRow(at=timestamp(), event="stopped", why=why))

    def _announce_format(self) -> None:
        """Record, before the first row of this version, that the journal began with an older
        format. Older versions then find the reason on the line before."""
        began_with = self.campaign.row.schema_
        why = (
            f"rows of format {SCHEMA} follow in this journal of format {began_with}: versions "
            f"of autoresearch that read up to {began_with} stop here, and nothing is damaged"
        )
        if began_with < SCHEMA and all(e.why != why for e in self.campaign.history.events()):
            self.record(EventRow(at=timestamp(), event="note", why=why))

    def interrupted(self, trial_ids: Sequence[str], why: str) -> None:
        """Record that these trials are in no other row and are not counted."""
        if trial_ids:
            self.record(
                EventRow(at=timestamp(), event="interrupted", why=why, trial_ids=tuple(trial_ids))
            )
            self.note(f"{', '.join(trial_ids)}: {why}")

    def not_needed(self, trial_ids: Sequence[str]) -> None:
        """Record speculative trials that were not needed, without telling a person."""
        if trial_ids:
            why = "speculative trial on an idle lane, not needed"
            self.record(
                EventRow(at=timestamp(), event="not_needed", why=why, trial_ids=tuple(trial_ids))
            )

    def report_unfinished(self, orphaned: OrphanedTrials) -> None:
        """Record which trials were running when the campaign last stopped."""
        self.interrupted(orphaned.unfinished, "in flight when the campaign last stopped")
        orphaned.unfinished.clear()

    def wait_while_paused(self) -> None:
        """Return once there is no ``pause`` file in the campaign's directory.

        :raises Interrupted: if a person asks for a stop meanwhile.
        """
        directory = self.campaign.directory
        if not pause_requested(directory):
            return
        why = f"the file {directory / PAUSE_FILE} exists; remove it to continue"
        self.record(EventRow(at=timestamp(), event="paused", why=why))
        self.note(f"paused: {why}")
        self.on_pause(why)
        while pause_requested(directory):
            self.stop.check()
            time.sleep(PAUSE_POLL_S)
        self.record(EventRow(at=timestamp(), event="resumed", why="the pause file is gone"))
        self.note("resumed")


@dataclass(slots=True)
class Afterwards:
    """Deferred work after the rows of one session: their index, their file, the watcher's report.

    A row is on disk before anything else happens, since later decisions may depend on it. The rest
    waits until every lane has a trial again. A kill in between costs nothing: an index catches up
    with its journal when opened, and the file of an iteration with a row is removed.
    """

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
