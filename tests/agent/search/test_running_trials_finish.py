from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.iterations import PendingFiles
from agent.search.stopping import Goal
from autoresearch.errors import MachineryError
from tests.agent.search.test_several_lanes import check_resumed, cut_short
from tests.support import nights
from tests.support.simulated.executor import SimulatedJob
from trajectory.rows import IterationRow

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
def test_a_failure_ends_no_trial_and_is_raised(what: str, lanes: int, tmp_path: Path) -> None:
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
