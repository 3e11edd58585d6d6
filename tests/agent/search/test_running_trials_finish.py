"""Check that neither a first signal nor a failure beside it cuts a running trial short."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.judge import Assessment
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.iterations import PendingFiles, PendingIteration
from agent.search.stopping import Goal, Interrupted, StopRequest
from autoresearch.errors import CampaignError, MachineryError
from tests.agent.search.test_several_lanes import check_campaign_complete, cut_short, iterations
from tests.support import nights
from tests.support.simulated.executor import SimulatedExecutor, SimulatedJob
from tests.support.simulated.world import World
from trainer.executors.base import Executor, Finished, Job
from trainer.isolation.outcome import aborted
from trainer.spec import TrialSpec
from trajectory.rows import IterationRow, Row

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


def proposal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    write = PendingFiles.write

    def full(self: PendingFiles, pending: PendingIteration) -> None:
        if pending.iter == 9:
            raise MachineryError("it failed")
        write(self, pending)

    monkeypatch.setattr(PendingFiles, "write", full)


def row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Campaign.write

    def full(self: Campaign, row: Row) -> None:
        if isinstance(row, IterationRow) and row.iter == 9:
            raise MachineryError("it failed")
        write(self, row)

    monkeypatch.setattr(Campaign, "write", full)


def race_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Assessment] = []

    def assessed(_self: nights.Onlooker, assessment: Assessment) -> None:
        told.append(assessment)
        if len(told) == 9:
            raise CampaignError("it failed")

    monkeypatch.setattr(nights.Onlooker, "assessed", assessed)


def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    propose = RandomProposer.propose

    def down(self: RandomProposer, memory: Memory) -> Offer:
        if memory.iter == 9:
            raise MachineryError("it failed")
        return propose(self, memory)

    monkeypatch.setattr(RandomProposer, "propose", down)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("fails", [nobody_answers, proposal_is_refused, row_is_refused, race_fails])
def test_what_fails_beside_them_ends_none_and_is_told_then(
    fails: Callable[[pytest.MonkeyPatch], None], lanes: int, tmp_path: Path
) -> None:
    cancelled_ones: list[SimulatedJob] = []
    cancel = SimulatedJob.cancel

    def cancelled(self: SimulatedJob) -> None:
        if not self.done():
            cancelled_ones.append(self)
        cancel(self)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(SimulatedJob, "cancel", cancelled)
        fails(monkeypatch)
        with pytest.raises((MachineryError, CampaignError)):
            nights.work(tmp_path, Goal(iterations=40), lanes=lanes)
    assert not cancelled_ones
    done = len(iterations(nights.written(tmp_path)))
    nights.work(tmp_path, Goal(iterations=done + 6), lanes=lanes)
    check_campaign_complete(tmp_path, done + 6)
    assert not cut_short(tmp_path)
