"""Run a logger in its own thread, behind a queue that never blocks the loop.

The queue is bounded. A logger that raises, hangs or cannot keep up until the queue is full is
abandoned. The loop continues, and :attr:`BackgroundLogger.trouble` says what happened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full, Queue

from agent.loggers.base import RunEvent, RunLogger
from autoresearch.errors import AutoresearchError

QUEUE_EVENTS = 20_000
"""Some minutes of events on the fastest machine, and a few megabytes."""
CLOSE_S = 60.0
"""Seconds that the end of a loop waits for all loggers' last events. MLflow may still be creating
its database's tables when a short loop is over."""
HURRIED_CLOSE_S = 2.0
"""The same after a second request to stop."""
MESSAGE_CHARACTERS = 300


class BackgroundLogger:
    """Opens a logger and sends it events, in another thread."""

    def __init__(
        self,
        name: str,
        opener: Callable[[], RunLogger],
        *,
        queue_events: int = QUEUE_EVENTS,
    ) -> None:
        """Start the thread.

        :param opener: makes the logger; it runs in the thread, since it may hang too.
        """
        self.name = name
        self.trouble: str | None = None
        """Why it was abandoned; None while it works."""
        self._opener = opener
        self._queue: Queue[RunEvent | None] = Queue(queue_events)
        # A hanging thread must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"log {name}", daemon=True)
        self._thread.start()

    def log(self, event: RunEvent) -> None:
        """Queue one event without waiting."""
        if self.trouble is not None:
            return
        try:
            self._queue.put_nowait(event)
        except Full:
            self._give_up(f"it is {self._queue.maxsize} events behind")

    def end(self) -> None:
        """Signal that no more events follow, without waiting."""
        with suppress(Full):  # if it is full, close() signals again
            self._queue.put_nowait(None)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Let the logger finish, for at most ``wait_s`` seconds."""
        if self.trouble is not None:
            return
        until = time.monotonic() + wait_s
        try:
            self._queue.put(None, timeout=wait_s)
        except Full:
            self._give_up(f"it is {self._queue.maxsize} events behind")
            return
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._give_up(f"it was not done {wait_s:.3g} s after the end")

    def _give_up(self, why: str) -> None:
        self.trouble = (
            f"--log {self.name} is abandoned ({why}); the campaign's results are unaffected"
        )
        while True:  # drop events that will not be read
            try:
                self._queue.get_nowait()
            except Empty:
                return

    def _work(self) -> None:
        try:
            logger = self._opener()
            try:
                while self.trouble is None and (event := self._queue.get()) is not None:
                    logger.log(event)
            finally:
                logger.close()
        # Another program's library may raise anything, or end this thread silently.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            plain = isinstance(error, AutoresearchError)
            said = str(error) if plain else f"{type(error).__name__}: {error}"
            self._give_up(" ".join(said.split())[:MESSAGE_CHARACTERS])
