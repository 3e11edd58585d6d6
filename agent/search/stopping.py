"""Stop a campaign on request, gracefully once and at once the second time, or pause it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from autoresearch.layout import PAUSE_FILE


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

    def ask(self) -> None:
        """Ask for the end, once more.

        :raises Interrupted: if nothing is deferred.
        """
        self._count += 1
        if not self._deferred:
            raise Interrupted("stopped as asked")

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
    return os.path.lexists(directory / PAUSE_FILE)
