"""A night of trials under one script: the ruler of a command is its script, and a person may save
that again while trials run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from autoresearch.layout import RESULT_FILE
from trainer.executors.base import Executor, Finished, Job
from trainer.spec import CurvePoint, Place, TrialSpec


class OneScript(Executor):
    """An executor whose trials are all of the script that the campaign was begun with."""

    def __init__(self, executor: Executor, check: Callable[[], None]) -> None:
        """
        :param check: raises where the script is another by now. It reads every file of code: a
            millisecond for a script with a few files beside it.
        """
        self._executor = executor
        self._check = check
        self.places = executor.places
        self.places_by_kind = executor.places_by_kind

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        """See :meth:`Executor.submit`.

        :raises CampaignError: where the script is another.
        """
        self._check()
        return _CheckedJob(self._executor.submit(spec, trial_dir), trial_dir, self._check)

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """See :meth:`Executor.wait`."""
        self._executor.wait(wake, timeout_s)

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._executor.describe()

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        self._executor.close()


class _CheckedJob(Job):
    """A job whose result counts only if the script is the same after it."""

    def __init__(self, job: Job, trial_dir: Path, check: Callable[[], None]) -> None:
        self._job = job
        self._result_file = trial_dir / RESULT_FILE
        self._check: Callable[[], None] | None = check

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Job.wait`."""
        return self._job.wait(timeout_s)

    def result(self, timeout_s: float | None = None) -> Finished:
        """See :meth:`Job.result`.

        :raises CampaignError: where the script is another than before the trial.
        """
        finished = self._job.result(timeout_s)
        if self._check is not None:
            try:
                self._check()
            except BaseException:
                # Of which script it is nobody knows, so nobody may take it up later.
                self._result_file.unlink(missing_ok=True)
                raise
            self._check = None
        return finished

    def when_done(self, callback: Callable[[], None]) -> None:
        """See :meth:`Job.when_done`."""
        self._job.when_done(callback)

    def place(self) -> Place | None:
        """See :meth:`Job.place`."""
        return self._job.place()

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        return self._job.points()

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        self._job.cancel()
