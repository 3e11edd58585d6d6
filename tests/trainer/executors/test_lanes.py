"""Several lanes act as one executor: the placement of trials, and the cost of a lane that dies."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError, SettingsError
from autoresearch.layout import LANE_FILE
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import LaneLost
from trainer.executors.lanes import MOST_LOSSES, Lane, Lanes, shares, spots, visible_gpus
from trainer.schema import CurvePoint, Measured, Place, TrialSpec

SPEC = trial_spec()
SECOND_POINT = CurvePoint(step=2, loss=0.5, elapsed_s=0.2)


class Scripted(Lane):
    """Lane whose trials end as scripted, one after another, and succeed after that."""

    def __init__(self, *ends: Exception, name: str = "0") -> None:
        self.place = Place(lane=name)
        self._ends = list(ends)
        self.ran: list[str] = []
        self.may_end, self.may_return = threading.Event(), threading.Event()
        self.may_end.set()
        self.may_return.set()
        self.comes_back = True

    def describe(self) -> str:
        return "scripted"

    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
    ) -> Measured:
        self.ran.append(spec.trial_id)
        self.may_end.wait()
        for step in range(1, 3 + len(self._ends)):
            on_point(SECOND_POINT.model_copy(update={"step": step}))
        assert not (trial_dir / "result.json").exists()
        if self._ends:
            (trial_dir / "result.json").write_text("what a lost lane left")
            raise self._ends.pop(0)
        return trial_ok(spec)

    def reopen(self, closing: threading.Event) -> bool:
        self.may_return.wait()
        return self.comes_back

    def close(self) -> None:
        """Do nothing: nothing is held."""


@pytest.mark.parametrize("losses", range(MOST_LOSSES + 2))
def test_a_trial_of_a_lost_lane_runs_again_a_few_times(losses: int, tmp_path: Path) -> None:
    lane = Scripted(*[LaneLost(f"lost {n}") for n in range(losses)])
    told: list[str] = []
    with Lanes([lane]) as executor:
        executor.on_loss = told.append
        job = executor.submit(SPEC, tmp_path / "t")
        if losses <= MOST_LOSSES:
            assert job.result().result == trial_ok(SPEC)
            assert [point.step for point in job.points()] == [*range(1, 3 + losses)], "each once"
        else:
            with pytest.raises(LaneLost, match=f"lost {MOST_LOSSES}"):
                job.result()
            after = executor.submit(trial_spec(trial_id="t2"), tmp_path / "t2").result()
            assert after.place == Place(lane="0"), "the lane is as good as before"
    assert len(told) == losses
    assert lane.ran.count(SPEC.trial_id) == min(losses, MOST_LOSSES) + 1


def test_another_failure_is_not_tried_again(tmp_path: Path) -> None:
    lane = Scripted(MachineryError("the disk is full"))
    with Lanes([lane]) as executor, pytest.raises(MachineryError):
        executor.submit(SPEC, tmp_path / "t").result()
    assert len(lane.ran) == 1


def test_ten_threads_that_submit_at_once_lose_nothing(tmp_path: Path) -> None:
    lanes = [Scripted(), Scripted(LaneLost("gone"), name="1"), Scripted(name="2")]
    done: list[str] = []
    with Lanes(lanes) as three:

        def submit(thread: int) -> None:
            for number in range(20):
                spec = trial_spec(trial_id=f"t{thread}-{number}")
                job = three.submit(spec, tmp_path / spec.trial_id)
                job.ended.add_done_callback(lambda _, spec=spec: done.append(spec.trial_id))  # type: ignore[misc]
                assert job.result().result == trial_ok(spec)

        threads = [threading.Thread(target=submit, args=(n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == len(set(done)) == 200
    assert sum(len(lane.ran) for lane in lanes) in (200, 201)


def test_a_lost_lane_gets_no_trial_until_it_is_back(tmp_path: Path) -> None:
    """Otherwise the lane would use up all of a trial's attempts within milliseconds."""
    lane = Scripted(LaneLost("its node is gone"))
    lane.may_return.clear()
    with Lanes([lane]) as executor:
        job = executor.submit(SPEC, tmp_path / "t")
        while not lane.ran:
            job.wait(0.01)
        assert not job.wait(0.2)
        assert len(lane.ran) == 1
        waiting = executor.submit(trial_spec(trial_id="t2"), tmp_path / "t2")
        waiting.cancel()
        assert waiting.done(), "a trial that waits for a lane is cancelled at once"
        lane.may_return.set()
        assert job.result().result == trial_ok(SPEC)
        assert len(lane.ran) == 2


def test_waiting_trials_fail_once_every_lane_is_gone_for_good(tmp_path: Path) -> None:
    lanes = [Scripted(LaneLost("gone"), name=str(number)) for number in range(2)]
    for lane in lanes:
        lane.comes_back = False
        lane.may_end.clear()
    with Lanes(lanes) as executor:
        jobs = [executor.submit(trial_spec(trial_id=f"t{n}"), tmp_path / str(n)) for n in range(3)]
        for lane in lanes:
            lane.may_end.set()
        for job in jobs:
            with pytest.raises(LaneLost):
                job.result()
        with pytest.raises(LaneLost):
            executor.submit(trial_spec(), tmp_path / "late")


def test_a_lost_trial_waits_for_another_lane_than_the_one_that_lost_it(tmp_path: Path) -> None:
    """A lane that loses every trial would use up all attempts while the other lane is busy."""
    busy, loses = Scripted(), Scripted(LaneLost("gone"), name="1")
    busy.may_end.clear()
    loses.may_end.clear()
    with Lanes([busy, loses]) as executor:
        jobs = [executor.submit(trial_spec(trial_id=f"t{n}"), tmp_path / f"t{n}") for n in range(2)]
        while not (busy.ran and loses.ran):
            jobs[0].wait(0.01)
        on_busy, lost = jobs if busy.ran == ["t0"] else reversed(jobs)
        loses.may_end.set()
        third = executor.submit(trial_spec(trial_id="t2"), tmp_path / "t2")
        assert third.result().place == Place(lane="1"), "another trial is given to it"
        assert not lost.wait(0.2)
        busy.may_end.set()
        assert on_busy.result().place == lost.result().place == Place(lane="0")
        written = (lost.trial_dir / LANE_FILE).read_text(), (tmp_path / "t2/lane").read_text()
        assert written == ("0", "1")


def test_a_trial_returns_to_its_lane_if_the_others_are_away(tmp_path: Path) -> None:
    first, second = (Scripted(LaneLost("gone"), name=name) for name in "01")
    first.may_return.clear()
    with Lanes([first, second]) as executor:
        jobs = [executor.submit(trial_spec(trial_id=f"t{n}"), tmp_path / f"t{n}") for n in range(2)]
        assert [job.result().place for job in jobs] == [Place(lane="1")] * 2
        first.may_return.set()


def test_a_lane_file_that_cannot_be_written_or_was_a_link_stops_no_trial(tmp_path: Path) -> None:
    (tmp_path / "t1" / LANE_FILE / "full").mkdir(parents=True)
    (tmp_path / "t2").mkdir()
    (tmp_path / "elsewhere").write_text("of a person")
    (tmp_path / "t2" / LANE_FILE).symlink_to(tmp_path / "elsewhere")
    with Lanes([Scripted()]) as executor:
        for name in ("t1", "t2"):
            assert executor.submit(SPEC, tmp_path / name).result().result == trial_ok(SPEC)
    assert (tmp_path / "elsewhere").read_text() == "of a person"
    assert (tmp_path / "t2" / LANE_FILE).read_text() == "0"


@pytest.mark.parametrize(
    ("cores", "number", "expected"),
    [
        (range(8), 2, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (range(8), 3, [(0, 1), (2, 3), (4, 5)]),
        ([1, 5], 2, [(1,), (5,)]),
        ([0, 1], 5, [(0,), (1,), (0,), (1,), (0,)]),
        ([3], 2, [(3,), (3,)]),
    ],
)
def test_cores_are_shared(cores: list[int], number: int, expected: list[tuple[int, ...]]) -> None:
    assert shares(list(cores), number) == expected


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("3, GPU-77,5", ["3", "GPU-77", "5"]),
        ("0,-1,1", ["0"]),
        ("", []),
        ("1,,2", ["1"]),
        ("NoDevFiles", []),
    ],
)
def test_each_lane_has_its_gpu(said: str, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA sees the names before the first invalid one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert visible_gpus() == seen
    placed = spots(len(seen), "cuda")
    assert [(spot.variables or {})["CUDA_VISIBLE_DEVICES"] for spot in placed] == seen
    assert [spot.name for spot in placed] == [str(number) for number in range(len(seen))]
    with pytest.raises(SettingsError):
        spots(len(seen) + 1, "cuda")
    with pytest.raises(SettingsError):
        spots(2, "cuda:1")


def test_a_gpu_that_is_named_twice_is_no_two_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0,1")
    with pytest.raises(SettingsError):
        spots(2, "cuda")
