"""Runs of a plan: side by side where there are lanes, and told in the plan's order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from agent.search.scribe import Scribe
from agent.search.trials import TrialRunner
from trainer.spec import TrialSpec
from trainer.telemetry import Meter
from trajectory.rows import Role, TrialRecord


@dataclass(frozen=True, slots=True)
class DoneRun:
    """What came of one."""

    spec: TrialSpec
    """As it was asked for, its trial_id empty."""
    trial: TrialRecord
    energy_wh: float | None
    """None where nothing measured it, where the run had ended before this start, and where several
    ran at once: nobody can say which drew what."""


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """Has them run."""

    runner: TrialRunner
    meter: Meter
    scribe: Scribe

    def go(
        self, specs: Iterable[TrialSpec | None], role: Role, ended: Callable[[DoneRun], None]
    ) -> None:
        """Every run, as many at once as there are places; with one place a spec is not asked for
        before the run ahead of it is told.

        :param specs: their trial_id empty. None among them: which is next follows from a run that
            was not told yet, so that they are asked again.
        :param ended: told each run in the order of the specs, to write its row. What has ended and
            was not told when the work stops is on disk, to be taken up by the next sitting.
        :raises Interrupted: when a person stopped it, once all that runs has ended.
        """
        began: deque[tuple[TrialSpec, float]] = deque()

        def asked() -> Iterator[tuple[TrialSpec, Role] | None]:
            for spec in specs:
                if spec is not None:
                    began.append((spec, time.monotonic()))
                yield None if spec is None else (spec, role)

        with self.runner.undisturbed(), closing(self.runner.run_all(asked())) as trials:
            for trial in trials:
                spec, since = began.popleft()
                unknown = trial.trial_id in self.runner.taken_up or self.runner.places > 1
                ended(DoneRun(spec, trial, None if unknown else self.meter.energy_wh(since)))


def between_runs(scribe: Scribe) -> None:
    """Return once nobody wants a pause: for whoever names the next run.

    :raises Interrupted: when a person stopped the work.
    """
    scribe.stop.check()
    scribe.wait_while_paused()
