"""A lane that is lost for minutes, or for good, as the trials that wait for lanes see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.executors import InstantExecutor
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Finished, LaneLost
from trainer.executors.lanes import Lane, Lanes
from trainer.spec import CurvePoint, Place, TrialSpec


class Away(InstantExecutor):
    """On a node that is gone, from its first trial on."""

    def __init__(self) -> None:
        self.back = False
        self.ran = 0

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.ran += 1
        if not self.back:
            raise LaneLost("its node is gone")
        return Finished(trial_ok(spec), 1.0)


class Mended(Lane):
    """A lane that comes back once a test says so."""

    def __init__(self, name: str, executor: Away) -> None:
        super().__init__(Place(lane=name), executor)
        self.said = threading.Event()
        self.comes_back = True
        self.executor: Away = executor

    def mend(self) -> bool:
        """Until the test says how it is."""
        self.said.wait(10)
        self.executor.back = self.comes_back
        return self.comes_back


def test_a_lane_whose_node_is_away_is_given_nothing_until_it_is_back(tmp_path: Path) -> None:
    """Else it would take a trial's every chance within milliseconds."""
    lane = Mended("0", Away())
    with Lanes([lane]) as lanes:
        job = lanes.submit(trial_spec(), tmp_path / "t")
        assert not job.wait(0.2)
        assert lane.executor.ran == 1
        lane.said.set()
        assert job.result(5).result == trial_ok(trial_spec())
        assert lane.executor.ran == 2


def test_where_every_lane_is_gone_for_good_what_waits_is_told(tmp_path: Path) -> None:
    gone = [Mended(str(number), Away()) for number in range(2)]
    with Lanes(gone) as lanes:
        jobs = [lanes.submit(trial_spec(trial_id=f"t{n}"), tmp_path / str(n)) for n in range(3)]
        for lane in gone:
            lane.comes_back = False
            lane.said.set()
        for job in jobs:
            with pytest.raises(LaneLost, match="its node is gone"):
                job.result(5)
        with pytest.raises(LaneLost, match="every lane is lost"):
            lanes.submit(trial_spec(), tmp_path / "late")
