"""Send the loop's events to loggers, each in its own thread behind a queue that never blocks.

The queue is bounded. A logger that raises, hangs or cannot keep up until the queue is full is
abandoned. The loop continues, and :attr:`BackgroundLogger.trouble` says what happened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Full, Queue

from agent.loggers.base import (
    CampaignFacts,
    RunEvent,
    RunLogger,
    TrialBegan,
    TrialPoint,
)
from agent.search.trial import Watcher
from agent.settings.environment import check_tracker_secrets
from autoresearch.campaign_files import check_database, make_folder
from autoresearch.errors import AutoresearchError, SettingsError
from autoresearch.files import writing_to
from autoresearch.program import install_command
from autoresearch.words import did_you_mean, json_text
from trainer.schema import CurvePoint, TrialSpec
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord

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


class LoggingWatcher(Watcher):
    """Passes the events that can be logged to the loggers.

    A logger's failure is reported between iterations, when the loop's own thread has the journal.
    """

    def __init__(
        self, loggers: Sequence[BackgroundLogger], on_trouble: Callable[[str], None]
    ) -> None:
        """
        :param on_trouble: called once for each abandoned logger.
        """
        self._loggers = list(loggers)
        self._on_trouble = on_trouble

    def baseline_measured(self, row: BaselineRow) -> None:
        self._log(row)
        self._report_trouble()

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        self._log(TrialBegan(spec, role))

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        self._log(TrialPoint(trial_id, point))

    def trial_ended(self, record: TrialRecord) -> None:
        self._log(record)

    def iteration_ended(self, row: IterationRow) -> None:
        self._log(row)
        self._report_trouble()

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Let the loggers finish within ``wait_s`` seconds in all, and report their failures."""
        until = time.monotonic() + wait_s
        for logger in self._loggers:
            logger.end()
        for logger in self._loggers:
            logger.close(max(0.0, until - time.monotonic()))
        self._report_trouble()

    def _log(self, event: RunEvent) -> None:
        for logger in self._loggers:
            logger.log(event)

    def _report_trouble(self) -> None:
        for logger in [one for one in self._loggers if one.trouble is not None]:
            self._loggers.remove(logger)
            self._on_trouble(logger.trouble or "")


DEFAULT_PROJECT = "autoresearch"
TRACKERS = ("mlflow", "wandb", "tensorboard")


@dataclass(frozen=True, slots=True)
class LogTarget:
    """One ``--log`` option whose library is installed."""

    tracker: str
    where: str
    """A URI, a project or a directory; empty: the default."""

    @classmethod
    def parse(cls, text: str) -> LogTarget:
        """Parse ``mlflow[:URI]``, ``wandb[:PROJECT]`` or ``tensorboard[:DIR]``.

        :raises SettingsError: on anything else, if the library is not installed, or if its key
            cannot be sent.
        """
        tracker, _, where = text.partition(":")
        if tracker not in TRACKERS:
            raise SettingsError(
                f"--log {json_text(text)} names no known tracker{did_you_mean(tracker, TRACKERS)}; "
                "write mlflow[:URI], wandb[:PROJECT] or tensorboard[:DIR]"
            )
        if find_spec(tracker) is None:
            raise SettingsError(
                f"--log {tracker} needs {tracker}, which is not installed; run: "
                f"{install_command(tracker)}"
            )
        check_tracker_secrets(tracker)
        return cls(tracker, where)

    def started(self, facts: CampaignFacts) -> BackgroundLogger:
        """Start its logger in a thread of its own."""
        return BackgroundLogger(self.tracker, partial(self._opened, facts))

    def _opened(self, facts: CampaignFacts) -> RunLogger:
        from agent.loggers import trackers  # noqa: PLC0415 (of use to few)

        directory = facts.directory
        with writing_to(directory):  # these libraries open their files by their paths
            if self.tracker == "wandb":
                make_folder(directory, "wandb")
            elif self.tracker == "mlflow" and not self.where:
                check_database(directory, "mlflow.sqlite")
            elif not self.where:
                make_folder(directory, "tensorboard/campaign")
                make_folder(directory, "tensorboard/trials")
        if self.tracker == "mlflow":
            return trackers.MlflowLogger(self.where or str(directory / "mlflow.sqlite"), facts)
        if self.tracker == "wandb":
            return trackers.WandbLogger(self.where or DEFAULT_PROJECT, facts)
        return trackers.TensorboardLogger(Path(self.where or directory / "tensorboard"))


def log_targets(texts: Sequence[str]) -> tuple[LogTarget, ...]:
    """Return each distinct ``--log`` option.

    :raises SettingsError: see :meth:`LogTarget.parse`.
    """
    return tuple(dict.fromkeys(LogTarget.parse(text) for text in texts))
