"""Define when a campaign ends: its goal is reached, or a person stops or pauses it."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

from autoresearch.campaign_files import status_of
from autoresearch.errors import SettingsError
from autoresearch.layout import PAUSE_FILE
from autoresearch.words import counted, duration_text
from trajectory.rows import BaselineRow, IterationRow, Row
from trajectory.spending import BusyTime


class Interrupted(KeyboardInterrupt):
    """A person asked the campaign to stop; everything finished is on disk.

    Like its base it is not an ``Exception``, so no library in between treats it as its own failure
    and retries.
    """


class StopRequest:
    """Counts the signals that ask for the end, and decides what they may interrupt.

    Outside :meth:`deferred` a signal stops the work at once: nothing is lost while a corpus is read
    or a model is asked. A trial is worth finishing, so while one runs the first signal only
    requests the end. A second one, seen through :meth:`at_once`, kills the trial. Rows are always
    written whole.
    """

    def __init__(self) -> None:
        self._count = 0
        self._deferred = 0
        self.left_s: Callable[[], float | None] | None = None
        """Returns the expected seconds until the running trials end, None if unknown; set by the
        runner of the trials."""

    def ask(self) -> None:
        """Ask for the end, once more.

        :raises Interrupted: if nothing is deferred.
        """
        self._count += 1
        if not self._deferred:
            raise Interrupted("stopped as asked")
        if self._count <= 2:
            self._answer()

    def _answer(self) -> None:
        """Tell the user at once what the signal does. This writes to the descriptor itself, since a
        signal may interrupt a write to the stream."""
        text = "stopping now; the running trials are lost"
        if self._count == 1:
            left_s = self.left_s() if self.left_s is not None else None
            about = "" if left_s is None else f", about {duration_text(left_s)}"
            text = f"stopping after what runs now{about}; press Ctrl-C again to stop at once"
        with suppress(OSError):
            os.write(2, f"\n{text}\n".encode())

    @property
    def asked(self) -> bool:
        """Whether a person asked for the end; nothing new may start then."""
        return self._count > 0

    def at_once(self) -> bool:
        """Return whether even the running trial should end."""
        return self._count >= 2

    def check(self) -> None:
        """Stop between trials if asked.

        :raises Interrupted: once a stop was asked for.
        """
        if self._count:
            raise Interrupted("stopped as asked")

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Count signals without obeying them while a trial runs or a row is written."""
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Handle the signals while the block runs; only the main thread may.

        Terminals and Slurm announce the end with SIGHUP, SIGUSR1 and SIGUSR2. They count like
        SIGTERM, unless the process was started to ignore them, as by ``nohup``.
        """

        def asked(_signal: int, _frame: FrameType | None) -> None:
            self.ask()

        announced = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
        heeded = [number for number in announced if signal.getsignal(number) != signal.SIG_IGN]
        signals = (signal.SIGINT, signal.SIGTERM, *heeded)
        previous = {number: signal.signal(number, asked) for number in signals}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def pause_requested(directory: Path) -> bool:
    """Return whether a person put a ``pause`` file into the campaign's directory."""
    return status_of(directory, PAUSE_FILE) is not None


DEFAULT_ITERATIONS = 100


@dataclass(slots=True)
class Work:
    """Work of a campaign so far, over all its sessions."""

    iterations: int = 0
    trials: int = 0
    """Finished short runs, the baseline's included."""
    hours: float = 0.0
    """Wall time of iterations and the baseline, without pauses and work that a stop cut off."""
    _busy: BusyTime = field(default_factory=BusyTime)
    _seen: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Sum up a journal."""
        work = cls()
        for row in rows:
            work.add(row)
        return work

    def add(self, row: Row) -> None:
        """Add one row."""
        if isinstance(row, BaselineRow):
            self.trials += 1
            self.hours += self._busy.added_s(row) / 3600
        elif isinstance(row, IterationRow) and row.iter not in self._seen:
            self._seen.add(row.iter)  # a line duplicated by an editor is not work
            self.iterations += 1
            self.trials += len(row.trials)
            self.hours += self._busy.added_s(row) / 3600


@dataclass(frozen=True, slots=True)
class Goal:
    """Total to reach, earlier sessions included; a part that is None does not end the campaign.

    The goal is checked before an iteration starts, so trials and hours may overshoot by the races
    then in flight. Iterations never do.
    """

    iterations: int | None = None
    trials: int | None = None
    hours: float | None = None

    @classmethod
    def asked(cls, iterations: int | None, trials: int | None, hours: float | None) -> Self:
        """Return what a person asked for; DEFAULT_ITERATIONS if nothing.

        :raises SettingsError: if the hours are not finite.
        """
        if hours is not None and not math.isfinite(hours):
            raise SettingsError(f"--hours {hours} is not finite; set hours like 8 or 0.5")
        if iterations is None and trials is None and hours is None:
            return cls(DEFAULT_ITERATIONS)
        return cls(iterations, trials, hours)

    def __str__(self) -> str:
        """Return ``100 iterations or 8 hours``."""
        parts = (
            None if self.iterations is None else counted(self.iterations, "iteration"),
            None if self.trials is None else counted(self.trials, "trial"),
            None if self.hours is None else f"{self.hours:g} h of work",
        )
        return " or ".join(part for part in parts if part is not None)

    @property
    def is_iterations_alone(self) -> bool:
        """Whether only the number of iterations ends it."""
        return self.iterations is not None and self.trials is None and self.hours is None

    def leaves_room(self, work: Work, in_flight: int) -> bool:
        """Return whether one more iteration may start, so that never more run than were asked
        for."""
        if self.iterations is not None and work.iterations + in_flight >= self.iterations:
            return False
        return self.reached(work) is None

    def reached(self, work: Work) -> str | None:
        """Return which part of the goal is reached, in words; None if none is."""
        if self.iterations is not None and work.iterations >= self.iterations:
            if not self.iterations:
                return "the baseline is measured"
            return f"the goal of {counted(self.iterations, 'iteration')} is reached"
        if self.trials is not None and work.trials >= self.trials:
            goal = counted(self.trials, "trial")
            return f"the goal of {goal} is reached ({counted(work.trials, 'trial')})"
        if self.hours is not None and work.hours >= self.hours:
            return f"the goal of {self.hours:g} h is reached ({work.hours:.2f} h of work)"
        return None
