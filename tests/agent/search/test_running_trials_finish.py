"""Check that neither a first signal nor a failure beside it cuts a running trial short."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.iterations import PendingFiles
from agent.search.stopping import Goal, Interrupted, StopRequest
from autoresearch.errors import MachineryError
from tests.agent.search.test_several_lanes import check_resumed, cut_short
from tests.support import nights
from tests.support.simulated.executor import SimulatedExecutor, SimulatedJob
from tests.support.simulated.world import World
from trainer.executors.base import Executor, Finished, Job
from trainer.isolation.outcome import aborted
from trainer.spec import TrialSpec
from trajectory.rows import IterationRow

LOOKS = 6
"""Polls of a trial until it has ended."""


class LookedAt(Job):
    """A trial that ends at the sixth poll."""

    def __init__(self, job: Job, at_look: Callable[[str, int], None]) -> None:
        super().__init__(job.spec, job.trial_dir)
        self._job = job
        self._at_look = at_look
        self._looks = 0
        self.was_cut_short = False

    def wait(self, timeout_s: float | None = None) -> bool:
        if self._looks < LOOKS and not self.was_cut_short:
            self._looks += 1
            self._at_look(self.spec.trial_id, self._looks)
        return self._looks >= LOOKS or self.was_cut_short

    def result(self, timeout_s: float | None = None) -> Finished:
        if self.was_cut_short:
            raise aborted(self.spec.trial_id)
        return self._job.result()

    def cancel(self) -> None:
        self.was_cut_short |= self._looks < LOOKS


class Slow(Executor):
    """Run one trial at a time, which takes several polls."""

    def __init__(self, world: World, at_look: Callable[[str, int], None]) -> None:
        self._executor = SimulatedExecutor(world)
        self._at_look = at_look
        self.jobs: list[LookedAt] = []

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        job = LookedAt(self._executor.submit(spec, trial_dir), self._at_look)
        self.jobs.append(job)
        return job

    def wait(self, wake: threading.Event, timeout_s: float) -> None: ...
    def describe(self) -> str:
        return "slow"

    def close(self) -> None:
        for job in self.jobs:
            job.cancel()


@pytest.mark.parametrize("look", [1, 3, LOOKS])
def test_one_of_a_race_finishes_at_the_first_signal(
    look: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, slow = StopRequest(), []

    def at_look(trial_id: str, now: int) -> None:
        if (trial_id, now) == ("t000009", look):
            stop.ask()

    def executor(world: World, _lanes: int) -> Slow:
        slow.append(Slow(world, at_look))
        return slow[-1]

    ended: list[str] = []
    monkeypatch.setattr(nights, "SimulatedExecutor", executor)
    monkeypatch.setattr(nights, "StopRequest", lambda: stop)
    with pytest.raises(Interrupted):
        nights.work(
            tmp_path, Goal(iterations=20), at_trial=lambda trial_id, _stop: ended.append(trial_id)
        )
    assert ended[-1] == "t000009"
    assert not [job for job in slow[0].jobs if job.was_cut_short]
    with pytest.raises(Interrupted):
        stop.ask()  # nothing runs any more, so nothing is deferred


assessments: list[object] = []
FAILURES: dict[str, tuple[type, str, Callable[[Any], bool]]] = {
    "the proposer": (RandomProposer, "propose", lambda memory: memory.iter == 9),
    "the file of a proposal": (PendingFiles, "write", lambda pending: pending.iter == 9),
    "the row": (
        Campaign,
        "write",
        lambda row: isinstance(row, IterationRow) and row.iter == 9,
    ),
    "the race": (
        nights.Onlooker,
        "assessed",
        lambda assessment: assessments.append(assessment) or len(assessments) == 9,
    ),
}
"""Class and method that fail, and whether they fail with this argument."""


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("what", FAILURES)
def test_what_fails_beside_running_trials_ends_none_and_is_raised_then(
    what: str, lanes: int, tmp_path: Path
) -> None:
    assessments.clear()
    owner, method, fails = FAILURES[what]
    original = getattr(owner, method)

    def failing(self: object, argument: object) -> object:
        if fails(argument):
            raise MachineryError("it failed")
        return original(self, argument)

    cancelled_ones: list[SimulatedJob] = []
    cancel = SimulatedJob.cancel

    def cancelled(self: SimulatedJob) -> None:
        if not self.done():
            cancelled_ones.append(self)
        cancel(self)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(SimulatedJob, "cancel", cancelled)
        monkeypatch.setattr(owner, method, failing)
        with pytest.raises(MachineryError):
            nights.work(tmp_path, Goal(iterations=40), lanes=lanes)
    assert not cancelled_ones
    check_resumed(tmp_path, 6, lanes)
    assert not cut_short(tmp_path)
