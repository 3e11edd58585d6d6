"""Several lanes act as one executor: the placement of trials, and the cost of a lane that dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError, SettingsError
from tests.support.executors import InstantExecutor
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Finished, LaneLost
from trainer.executors.lanes import MOST_LOSSES, Lane, Lanes
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


def test_a_result_says_where_it_came_from(tmp_path: Path) -> None:
    with lanes(Scripted()) as one:
        job = one.submit(SPEC, tmp_path / "t")
        assert job.place() == Place(lane="0")
        assert job.result().place == Place(lane="0")
        assert one.places == 1


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
