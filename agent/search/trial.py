"""One trial that was started or resumed, and the hooks that its runner calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from agent.search.scribe import timestamp
from autoresearch.errors import AutoresearchError
from trainer.executors.base import Finished, Job
from trainer.spec import CurvePoint, Place, TrialSpec
from trajectory.rows import Role

EndHook: TypeAlias = Callable[[Finished], Finished]
"""Takes how a trial ended and returns the record of it."""
StartHook: TypeAlias = Callable[[Path], EndHook]
"""Is called right before a trial starts, with its directory."""


class Trial:
    """A started trial: a job, or a finished trial reused from before the last stop."""

    def __init__(
        self, spec: TrialSpec, role: Role, work: Job | Finished, hooks: Iterable[EndHook] = ()
    ) -> None:
        self.spec = spec
        self.role = role
        self._work = work
        self._hooks = hooks
        self._finished = work if isinstance(work, Finished) else None
        self._reported_place: Place | None = None
        self.ended_at: str | None = None
        """ISO 8601; None for a reused trial."""
        if not isinstance(work, Finished):
            work.when_done(self._note_end)

    def _note_end(self) -> None:
        self.ended_at = timestamp()

    @property
    def runs(self) -> bool:
        """Whether this process started it, rather than reused it."""
        return not isinstance(self._work, Finished)

    def done(self) -> bool:
        """Return whether it has ended."""
        return isinstance(self._work, Finished) or self._work.done()

    def result(self) -> Finished:
        """See :meth:`Job.result`."""
        if self._finished is None:
            assert not isinstance(self._work, Finished)
            finished = self._work.result()
            for hook in self._hooks:
                finished = hook(finished)
            self._finished = finished
        return self._finished

    def is_void(self) -> bool:
        """Return whether it has ended without a result."""
        try:
            self.result()
        except AutoresearchError:
            return True
        return False

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        return () if isinstance(self._work, Finished) else self._work.points()

    def newly_placed(self) -> Place | None:
        """Return the trial's lane when it becomes known or changes, else None."""
        place = None if isinstance(self._work, Finished) else self._work.place()
        if place == self._reported_place:
            return None
        self._reported_place = place
        return place

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        if not isinstance(self._work, Finished):
            self._work.cancel()

    def await_end(self, timeout_s: float) -> None:
        """Wait until it has ended, for at most ``timeout_s``."""
        if not isinstance(self._work, Finished):
            self._work.wait(timeout_s)
