"""Write a campaign's rows, interruptions and pauses."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent.search.campaign import Campaign
from agent.search.stopping import StopRequest, pause_requested
from agent.search.trial import OrphanedTrials
from autoresearch import screen
from autoresearch.errors import AutoresearchError
from autoresearch.layout import PAUSE_FILE
from autoresearch.words import timestamp
from trajectory.rows import EventRow, Row

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

    def record(self, row: Row) -> None:
        """Write one row and index it; signals do not cut it short.

        A lagging index is reported once until it has caught up. A lost standard stream gets a row
        of its own.

        :raises MachineryError: if the journal cannot be written.
        """
        for why in screen.losses():
            self._write(EventRow(at=timestamp(), event="note", why=why))
        self._write(row)
        with self.stop.deferred():
            trouble = self.campaign.index()
        if trouble is not None and not self._lags:
            self.note(trouble)
        self._lags = trouble is not None

    def _write(self, row: Row) -> None:
        with self.stop.deferred():
            self.campaign.write(row)

    def take_note(self, why: str) -> None:
        """Record a note in the journal and show it."""
        self.record(EventRow(at=timestamp(), event="note", why=why))
        self.note(why)

    def stopped(self, error: Exception) -> None:
        """Record the error that ends the session, if the journal can still be written."""
        why = str(error) if isinstance(error, AutoresearchError) else f"a bug: {error!r}"
        with suppress(AutoresearchError):
            self.record(EventRow(at=timestamp(), event="stopped", why=why))

    def interrupted(self, trial_ids: Sequence[str], why: str) -> None:
        """Record that these trials are in no other row and are not counted."""
        if trial_ids:
            self.record(
                EventRow(at=timestamp(), event="interrupted", why=why, trial_ids=tuple(trial_ids))
            )
            self.note(f"{', '.join(trial_ids)}: {why}")

    def report_unfinished(self, orphaned: OrphanedTrials) -> None:
        """Record which trials were running when the campaign last stopped."""
        self.interrupted(orphaned.unfinished, "in flight when the campaign last stopped")
        orphaned.unfinished.clear()

    def report_unused(self, orphaned: OrphanedTrials) -> None:
        """Record finished trials that no race asks for. Long runs are kept, since the next stress
        test asks for them."""
        self.interrupted(
            orphaned.give_up(self.campaign.is_short_run),
            "finished before the campaign last stopped, but no race asks for them",
        )

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
