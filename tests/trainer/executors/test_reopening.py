"""Trials wait for lanes of which one is lost, for minutes or for good."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.executors import InstantExecutor
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Finished, LaneLost
from trainer.executors.lanes import Lane, Lanes, LanesJob
from trainer.spec import CurvePoint, Place, TrialSpec


class Away(InstantExecutor):
    """Executor on a node that is unreachable from its first trial on."""

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
    """Lane that recovers once a test says so."""

    def __init__(self, name: str, executor: Away) -> None:
        super().__init__(Place(lane=name), executor)
        self.said = threading.Event()
        self.comes_back = True
        self.executor: Away = executor

    def reopen(self) -> bool:
        """Wait until the test says whether the lane recovers."""
        self.said.wait()
        self.executor.back = self.comes_back
        return self.comes_back


def test_a_lane_whose_node_is_away_is_given_nothing_until_it_is_back(tmp_path: Path) -> None:
    """Otherwise the lane would use up all of a trial's attempts within milliseconds."""
    lane = Mended("0", Away())
    with Lanes([lane]) as lanes:
        job = lanes.submit(trial_spec(), tmp_path / "t")
        assert not job.wait(0.2)
        assert lane.executor.ran == 1
        lane.said.set()
        assert job.result().result == trial_ok(trial_spec())
        assert lane.executor.ran == 2


def test_where_every_lane_is_gone_for_good_what_waits_is_told(tmp_path: Path) -> None:
    gone = [Mended(str(number), Away()) for number in range(2)]
    with Lanes(gone) as lanes:
        jobs = [lanes.submit(trial_spec(trial_id=f"t{n}"), tmp_path / str(n)) for n in range(3)]
        for lane in gone:
            lane.comes_back = False
            lane.said.set()
        for job in jobs:
            with pytest.raises(LaneLost):
                job.result()
        with pytest.raises(LaneLost):
            lanes.submit(trial_spec(), tmp_path / "late")


class Held(InstantExecutor):
    """Executor whose trials run until the test lets them end."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.began = threading.Event()

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.began.set()
        self.end.wait()
        return Finished(trial_ok(spec), 1.0)


def test_a_lost_trial_waits_for_another_lane_than_the_one_that_lost_it(tmp_path: Path) -> None:
    """A lane that loses every trial would use up all attempts while the other lane is busy."""
    busy, loses = Held(), Mended("1", Away())
    with Lanes([Lane(Place(lane="0"), busy), loses]) as lanes:
        threading.Thread(
            target=lanes.submit, args=(trial_spec(trial_id="t0"), tmp_path / "t0"), daemon=True
        ).start()
        busy.began.wait()
        lost = lanes.submit(trial_spec(trial_id="t1"), tmp_path / "t1")
        loses.said.set()
        assert not lost.wait(0.2), "its lane is mended, and is not given it again"
        assert loses.executor.ran == 1
        third = lanes.submit(trial_spec(trial_id="t2"), tmp_path / "t2")
        assert third.result().place == Place(lane="1"), "another trial is"
        busy.end.set()
        assert lost.result().place == Place(lane="0")


def test_a_trial_goes_back_to_its_lane_where_the_others_are_away(tmp_path: Path) -> None:
    first, second = Mended("0", Away()), Mended("1", Away())
    with Lanes([first, second]) as lanes:
        job = lanes.submit(trial_spec(), tmp_path / "t")
        assert (first.executor.ran, second.executor.ran) == (1, 1)
        second.said.set()
        assert job.result().place == Place(lane="1"), "the first is away still"
        first.said.set()


class Telling(InstantExecutor):
    """Executor whose trials have a curve."""

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        for step in (1, 2, 3):
            tell(CurvePoint(step=step, loss=1.0 / step, elapsed_s=0.1 * step))
        return Finished(trial_ok(spec), 1.0)


def test_a_curves_points_are_told_once_over_its_attempts(tmp_path: Path) -> None:
    executor = Telling()
    job = LanesJob(trial_spec(), tmp_path / "t")
    job.runs_on(Place(lane="0"), executor.submit(trial_spec(), tmp_path / "t"))
    assert [point.step for point in job.points()] == [1, 2, 3]
    job.waits_again()
    assert job.points() == ()
    job.runs_on(Place(lane="1"), executor.submit(trial_spec(), tmp_path / "t"))
    assert job.points() == (), "they were told of the first attempt"
    assert job.place() == Place(lane="1")
