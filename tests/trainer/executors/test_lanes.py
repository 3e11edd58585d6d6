"""Several lanes act as one executor: the placement of trials, and the cost of a lane that dies."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError, SettingsError
from autoresearch.layout import LANE_FILE
from tests.support.executors import InstantExecutor
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Finished, LaneLost
from trainer.executors.lanes import MOST_LOSSES, Lane, Lanes, LanesJob
from trainer.executors.placement import shares, spots, visible_gpus
from trainer.spec import CurvePoint, Place, TrialSpec

SPEC = trial_spec()


class Scripted(InstantExecutor):
    """Executor whose trials end as scripted, one after another."""

    def __init__(self, *ends: Exception | None) -> None:
        self._ends = list(ends)
        self.ran: list[str] = []

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.ran.append(spec.trial_id)
        end = self._ends.pop(0) if self._ends else None
        if end is not None:
            trial_dir.mkdir(exist_ok=True)
            (trial_dir / "result.json").write_text("what a lost lane left")
            raise end
        assert not (trial_dir / "result.json").exists()
        return Finished(trial_ok(spec), 1.0)


def lanes(*executors: Scripted) -> Lanes:
    places = [Lane(Place(lane=str(n)), executor) for n, executor in enumerate(executors)]
    return Lanes(places)


@pytest.mark.parametrize("losses", range(MOST_LOSSES + 1))
def test_what_a_lost_lane_took_along_runs_again(losses: int, tmp_path: Path) -> None:
    executor = Scripted(*[LaneLost("its node is gone")] * losses)
    told: list[str] = []
    with lanes(executor) as one:
        one.on_loss = told.append
        assert one.submit(SPEC, tmp_path / "t").result().result == trial_ok(SPEC)
        assert executor.ran == [SPEC.trial_id] * (losses + 1)
        assert len(told) == losses
        assert all("its node is gone" in why for why in told)


def test_what_every_lane_loses_is_told_in_the_end(tmp_path: Path) -> None:
    executor = Scripted(*[LaneLost(f"lost {n}") for n in range(MOST_LOSSES + 1)])
    with lanes(executor) as one:
        with pytest.raises(LaneLost, match=f"lost {MOST_LOSSES}"):
            one.submit(SPEC, tmp_path / "t").result()
        after = one.submit(trial_spec(trial_id="t2"), tmp_path / "t2")
        assert after.result().result.status == "ok", "the lane is as good as before"


def test_what_is_no_loss_of_a_lane_is_not_tried_again(tmp_path: Path) -> None:
    executor = Scripted(MachineryError("the disk is full"))
    with lanes(executor) as one:
        with pytest.raises(MachineryError):
            one.submit(SPEC, tmp_path / "t").result()
        assert len(executor.ran) == 1


def test_ten_threads_that_submit_at_once_lose_nothing(tmp_path: Path) -> None:
    executors = [Scripted(), Scripted(LaneLost("gone")), Scripted()]
    done: list[str] = []
    with lanes(*executors) as three:

        def submit(thread: int) -> None:
            for number in range(20):
                spec = trial_spec(trial_id=f"t{thread}-{number}")
                job = three.submit(spec, tmp_path / spec.trial_id)
                job.when_done(lambda spec=spec: done.append(spec.trial_id))  # type: ignore[misc]
                assert job.result().result == trial_ok(spec)

        threads = [threading.Thread(target=submit, args=(n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == len(set(done)) == 200
    assert sum(len(executor.ran) for executor in executors) in (200, 201)


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
def test_lanes_have_equally_many_cores(
    cores: list[int], number: int, expected: list[tuple[int, ...]]
) -> None:
    assert shares(list(cores), number) == expected


def test_a_gpu_lane_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-77,5")
    assert visible_gpus() == ["3", "GPU-77", "5"]
    placed = spots(2, "cuda")
    variables = [spot.variables or {} for spot in placed]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in variables] == ["3", "GPU-77"]
    assert [spot.name for spot in placed] == ["0", "1"]
    with pytest.raises(SettingsError, match="--lanes"):
        spots(4, "cuda")
    with pytest.raises(SettingsError):
        spots(2, "cuda:1")


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("0,-1,1", ["0"]),
        ("-1", []),
        ("", []),
        ("1,,2", ["1"]),
        ("NoDevFiles", []),
        ("2, 0", ["2", "0"]),
    ],
)
def test_cuda_sees_what_stands_before_the_first_name_that_is_none(
    said: str, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert visible_gpus() == seen
    with pytest.raises(SettingsError):
        spots(len(seen) + 1, "cuda")


def test_a_gpu_that_is_named_twice_is_no_two_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0,1")
    with pytest.raises(SettingsError):
        spots(2, "cuda")


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
        super().__init__(Place(lane=name), executor, self.mended)
        self.said = threading.Event()
        self.comes_back = True
        self.executor: Away = executor

    def mended(self) -> bool:
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
        assert [(tmp_path / name / LANE_FILE).read_text() for name in ("t1", "t2")] == ["0", "1"]


def test_a_lane_that_cannot_be_named_or_was_a_link_hinders_no_trial(tmp_path: Path) -> None:
    (tmp_path / "t1" / LANE_FILE / "full").mkdir(parents=True)
    (tmp_path / "t2").mkdir()
    (tmp_path / "elsewhere").write_text("of a person")
    (tmp_path / "t2" / LANE_FILE).symlink_to(tmp_path / "elsewhere")
    with lanes(Scripted()) as one:
        for name in ("t1", "t2"):
            assert one.submit(SPEC, tmp_path / name).result().result == trial_ok(SPEC)
    assert (tmp_path / "elsewhere").read_text() == "of a person"
    assert (tmp_path / "t2" / LANE_FILE).read_text() == "0"


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
