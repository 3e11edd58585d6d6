"""Follower of a running campaign, which reads only the campaign's files.

It takes no lock, never opens the history, and writes nothing but the pause file. The journal is
append-only and a complete line never changes, so the follower reads on from the last known byte. No
reader can keep the loop waiting.
"""

import os
import time
from collections import deque
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import ValidationError

from autoresearch.campaign_files import open_file, remove, status_of
from autoresearch.errors import JournalError
from autoresearch.layout import (
    IN_FLIGHT_DIR,
    JOURNAL_FILE,
    PAUSE_FILE,
    TELEMETRY_FILE,
    in_flight_names,
    is_imported,
)
from trainer.schema import BPB
from trajectory.journal import open_journal, read_records
from trajectory.live.brief import Brief, Status, brief_of, estimates
from trajectory.live.growing_files import (
    RunningTrial,
    RunningTrials,
    read_until,
)
from trajectory.lock import lock_state
from trajectory.reading import Results
from trajectory.rows import (
    ConfirmedRow,
    EventRow,
    IterationRow,
    Row,
    parse_row,
)

SILENT_S = 60.0
"""Seconds without a change of any file, after which a campaign does not count as running."""
KILLED = "its process was killed before it had finished; resume it with the same loop command"
PACE_ITERATIONS = 20


class Follower:
    """Reads one campaign's directory as it grows. One thread polls; any thread may read the
    results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._trials = RunningTrials(directory)
        self._forget()

    def _forget(self) -> None:
        self.state = Results()
        """Results of the rows read so far."""
        self._estimates: tuple[int, dict[str, Any]] = (0, {})
        """Cached estimates of a status, and the number of rows they were computed from."""
        self.briefs: list[Brief] = []
        """Summaries of finished iterations, in the order in which they finished."""
        self._ended = False
        """Whether it was confirmed after its latest iteration."""
        self._stopped: str | None = None
        """The error that ended the latest session; None after any later result."""
        self.rows = 0
        """Lines of the journal read so far."""
        self._end = 0
        self._identity: tuple[int, int] | None = None
        self._read: tuple[int, int] | None = None
        """Size and last change of the journal, once it was read to its end or to a damaged line."""
        self._damage: str | None = None
        """The error at a damaged line."""
        self._places: dict[int, tuple[int, int, int]] = {}
        """Maps an iteration to its index in ``briefs``, and the offset and length of its line. An
        imported journal may lack some."""
        self._walls_s: deque[float] = deque(maxlen=PACE_ITERATIONS)
        self.until: int | None = None
        """Last known number of iterations that the running loop is to reach. It is kept because
        between two iterations nothing is in flight."""
        self._activity_s = 0.0

    def poll(self) -> list[Brief]:
        """Read the rows that were appended since the last poll, and return the iterations among
        them.

        If the journal was replaced or has become shorter, it is read from its beginning.

        :raises JournalError: if a line is damaged.
        :raises MachineryError: if the journal cannot be read.
        """
        landed: list[Brief] = []
        stat = status_of(self.directory, JOURNAL_FILE)
        if stat is None:
            return []
        identity = (stat.st_dev, stat.st_ino)
        if self._identity not in (None, identity) or stat.st_size < self._end:
            self._forget()
        self._identity = identity
        self._trials.poll()
        self.until = read_until(self.directory) or self.until
        changes = [stat.st_mtime, self._trials.changed_s]
        for name in (IN_FLIGHT_DIR, TELEMETRY_FILE):
            if (status := status_of(self.directory, name)) is not None:
                changes.append(status.st_mtime)
        self._activity_s = max(changes)
        here = stat.st_size, stat.st_ctime_ns
        if here != self._read:
            self._damage = None
            try:
                landed = self._read_on()
            except JournalError as error:
                self._damage = str(error)
            self._read = here
        if self._damage is not None:
            raise JournalError(self._damage)
        return landed

    def _read_on(self) -> list[Brief]:
        """Read the rows that were appended."""
        records = read_records(self.directory / JOURNAL_FILE, offset=self._end, line=self.rows)
        landed: list[Brief] = []
        for record in records:
            if not record.raw.endswith(b"\n"):
                return landed  # the line is still being written
            begin, self._end, self.rows = self._end, record.end, record.line
            active_s = self.state.add(record.row)
            if isinstance(record.row, IterationRow):
                landed.append(brief_of(record.row))
                self._walls_s.append(active_s)
                place = len(self.briefs), begin, record.end - begin
                self._places[record.row.iter] = place
                self.briefs.append(landed[-1])
            self._note(record.row)
        return landed

    def _note(self, row: Row) -> None:
        """Keep what the row says of the campaign's state."""
        if isinstance(row, IterationRow | ConfirmedRow):
            self._ended = isinstance(row, ConfirmedRow)
        if isinstance(row, EventRow):
            self._stopped = row.why if row.event == "stopped" else self._stopped
            self._trials.cut_off(row.trial_ids)
            return
        self._stopped = None

    def iteration(self, number: int) -> IterationRow | None:
        """Return the whole row of a finished iteration, read from the journal again; None if there
        is none, or if the journal has been replaced."""
        if number not in self._places:
            return None
        _, start, length = self._places[number]
        try:
            with open_journal(self.directory / JOURNAL_FILE) as file:
                file.seek(start)
                row = parse_row(file.read(length))
        except (OSError, JournalError, ValidationError):
            return None
        return row if isinstance(row, IterationRow) else None

    def after(self, number: int, limit: int) -> list[Brief]:
        """Return up to ``limit`` iterations that finished after the given one, in the order in
        which they finished.

        With several lanes, this is not the order of their numbers. If the given one has not
        finished, return those from the first with a higher number on.
        """
        if number in self._places:
            first = self._places[number][0] + 1
        else:
            higher = (at for at, brief in enumerate(self.briefs) if brief.iter > number)
            first = next(higher, len(self.briefs))
        return self.briefs[first : first + limit]

    @property
    def running(self) -> RunningTrial | None:
        """The newest running trial, with its curve so far."""
        return self._trials.running

    def lanes(self) -> tuple[RunningTrial, ...]:
        """Return the trial on each lane, with the latest point of its curve; nothing if one trial
        runs at a time, or none does."""
        if self.status().state in {"silent", "done"}:
            return ()
        # A trial that was given up leaves no result, and a newer one takes its lane.
        newest = {one.lane: one for one in self._trials.all if one.lane is not None}
        return tuple(
            newest[lane].model_copy(update={"points": newest[lane].points[-1:]})
            for lane in sorted(newest, key=lambda lane: (len(lane), lane))
        )

    @property
    def trouble(self) -> str | None:
        """The error or the kill that ended the last session; None if it runs or ended well."""
        held = lock_state(self.directory)
        if held == "held" or self._stopped is not None:
            return None if held == "held" else self._stopped
        unfinished = in_flight_names(self.directory) or not self.briefs
        return KILLED if held == "abandoned" and unfinished else None

    @property
    def paused(self) -> bool:
        """Whether the pause file exists."""
        return status_of(self.directory, PAUSE_FILE) is not None

    def pause(self, wanted: bool) -> None:
        """Write or remove the pause file, which the loop obeys before its next iteration.

        :raises OSError: if the directory cannot be written.
        """
        if wanted:
            os.close(open_file(self.directory, PAUSE_FILE, os.O_WRONLY | os.O_CREAT))
        else:
            remove(self.directory, PAUSE_FILE)

    def status(self) -> Status:
        """Return the campaign's current status."""
        pace_s = fmean(self._walls_s) if self._walls_s else None
        left = None if self.until is None else max(0, self.until - len(self.briefs))
        silent_s = max(0.0, time.time() - self._activity_s)
        campaign = self.state.campaign
        measure = campaign.measured_in if campaign else BPB
        if self._estimates[0] != self.rows or not self._estimates[1]:
            self._estimates = self.rows, estimates(self.state, self.briefs)
        lane_use = self.state.lane_use
        metered = [brief.energy_wh for brief in self.briefs if brief.energy_wh is not None]
        return Status(
            state=self._state(silent_s),
            silent_s=silent_s,
            iterations=len(self.briefs),
            until=self.until,
            keeps=self.state.kept,
            pace_s=pace_s,
            eta_s=pace_s * left if pace_s is not None and left is not None else None,
            unit=measure.short,
            direction=measure.direction,
            digits=measure.digits,
            **self._estimates[1],
            failures=dict(self.state.failures),
            energy_wh=sum(metered) if metered else None,
            lanes=lane_use.lanes or None,
            lanes_in_use=lane_use.share,
            lanes_in_use_of_hour=lane_use.share_of_last_hour,
        )

    def _state(self, silent_s: float) -> Literal["running", "paused", "silent", "done"]:
        if self.paused:
            return "paused"
        reached = self._ended or (self.until is not None and len(self.briefs) >= self.until)
        still = silent_s >= SILENT_S or is_imported(self.directory)
        in_flight = self._trials.running is not None or in_flight_names(self.directory)
        if self.briefs and not in_flight and (reached or still):
            return "done"
        return "silent" if still else "running"
