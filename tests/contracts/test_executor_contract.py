import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from autoresearch.errors import CorpusError, MachineryError, SettingsError, SpecError
from tests.support import hostile
from tests.support.fake_slurm import slurm_lane
from tests.support.processes import alive, noted
from tests.support.ray_lanes import close_shared_cluster, ray_lane
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_until
from trainer.executors.base import Executor, Finished, Job, StillRunning, TrialAborted
from trainer.executors.choice import EXECUTORS, choose_executor
from trainer.executors.lanes import Lanes
from trainer.executors.local import LocalExecutor, LocalLane
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import CurvePoint, Place, TrialFailed, TrialOk


@contextmanager
def local() -> Iterator[Executor]:
    if not Layers.detect().confine:
        pytest.skip("this kernel has no Landlock")
    with LocalExecutor(entry=hostile.ENTRY) as executor:
        yield executor


@contextmanager
def lanes() -> Iterator[Executor]:
    layers = Layers(0, seccomp=False)
    opened = [
        LocalLane(
            place=Place(lane=str(n)), entry=hostile.ENTRY, layers=layers, allow_unsandboxed=True
        )
        for n in range(2)
    ]
    with Lanes(opened) as executor:
        yield executor


@contextmanager
def slurm() -> Iterator[Executor]:
    with TemporaryDirectory() as folder, slurm_lane(Path(folder)) as executor:
        yield executor


MAKERS = {"local": local, "lanes": lanes, "ray lane": ray_lane, "slurm lane": slurm}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("ray lane", "slurm lane")]
PARAMS = [*list(MAKERS)[:2], *SLOW]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    yield
    close_shared_cluster()


@pytest.fixture(scope="module", params=PARAMS)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with MAKERS[request.param]() as opened:
        yield opened


@pytest.fixture(params=PARAMS)
def fresh(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """Yield an executor that the test may close."""
    with MAKERS[request.param]() as opened:
        yield opened


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    return tmp_path / "trial"


def submit(
    executor: Executor, trial_dir: Path, attack: Callable[..., object], /, **arguments: object
) -> Job:
    return executor.submit(trial_spec(), hostile.arm(trial_dir, attack, **arguments))


def spread(executor: Executor, trial_dir: Path) -> Job:
    """Return a trial that ignores SIGTERM, once it has three descendants."""
    hostile.arm(trial_dir, hostile.spread, stay=True, deaf=True)
    job = executor.submit(trial_spec(), trial_dir)
    wait_until(lambda: len(noted(trial_dir)) == 4)
    return job


def same(finished: Finished, result: TrialOk | TrialFailed) -> bool:
    """Return whether the results are equal, except for the energy that a meter adds."""
    return finished.result.model_copy(update={"energy_wh": None}) == result


def test_a_job_is_there_before_its_trial_has_ended(executor: Executor, trial_dir: Path) -> None:
    asked_at = time.monotonic()
    job = submit(executor, trial_dir, hostile.hold)
    assert not job.done()
    assert not job.wait(0.01)
    with pytest.raises(StillRunning):
        job.result(0.02)
    hostile.let_go(trial_dir)
    finished = job.result()
    took_s = time.monotonic() - asked_at
    assert job.done()
    assert job.wait()
    assert job.result() == finished
    assert 0 < finished.wall_s <= took_s


def test_each_job_has_its_own_result_and_starts_in_turn(executor: Executor, tmp_path: Path) -> None:
    jobs, expected = [], []
    for number in range(4):
        spec = trial_spec(trial_id=f"t{number}")
        expected.append(trial_ok(spec, val_bpb=4 + number / 8))
        text = expected[-1].model_dump_json()
        folder = hostile.arm(tmp_path / str(number), hostile.leave_result, text=text)
        jobs.append(executor.submit(spec, folder))
    for job, result in reversed(list(zip(jobs, expected, strict=True))):
        assert same(job.result(), result)
    began = [(tmp_path / str(number) / "trainer.log").stat().st_mtime_ns for number in range(4)]
    # Trials that start at once may do so in either order.
    assert all(began[n] < began[n + executor.places] for n in range(4 - executor.places))


def test_the_order_is_on_the_disk_before_the_trial(executor: Executor, trial_dir: Path) -> None:
    submit(executor, trial_dir, hostile.read, path="spec.json").wait()
    assert hostile.loot(trial_dir) == trial_spec().model_dump_json()


def test_points_come_once_in_order_and_all_of_them(executor: Executor, trial_dir: Path) -> None:
    curve = [
        CurvePoint(step=n, tokens=n * 1024, loss=5.0, lr=1e-3, grad_norm=1.0, elapsed_s=n / 10)
        for n in range(1, 21)
    ]
    lines = [point.model_dump_json() for point in curve]
    job = submit(executor, trial_dir, hostile.write_curve, lines=lines, held=10)
    told: list[CurvePoint] = []
    wait_until(lambda: bool(told.extend(job.points()) or told))
    assert not job.done(), "they come while it runs"
    assert len(told) < len(curve)
    hostile.let_go(trial_dir)
    job.wait()
    assert [*told, *job.points()] == curve
    assert job.points() == ()
    assert job.result().result.steps == 20


def test_a_failure_is_a_result_and_all_are_values(executor: Executor, trial_dir: Path) -> None:
    """On a cluster they cross to another machine."""
    spec = pickle.loads(pickle.dumps(trial_spec()))
    job = executor.submit(spec, hostile.arm(trial_dir, hostile.exit_with, code=3))
    finished = job.result()
    assert pickle.loads(pickle.dumps(finished)) == finished
    result = finished.result
    assert (result.status, result.message) == ("crash", "exit code 3")  # type: ignore[union-attr]
    assert executor.describe().splitlines() == [executor.describe()]


@pytest.mark.parametrize("error", [SpecError, CorpusError, MachineryError])
def test_what_is_no_evidence_is_raised_each_time(
    executor: Executor, trial_dir: Path, error: type[Exception]
) -> None:
    job = submit(executor, trial_dir, hostile.report_error, kind=error.__name__)
    for _ in range(2):
        with pytest.raises(error):
            job.result()
    assert job.done()


def test_a_directory_with_a_result_is_kept(executor: Executor, trial_dir: Path) -> None:
    trial_dir.mkdir()
    (trial_dir / "result.json").write_text("precious")
    job = submit(executor, trial_dir, hostile.leave_result, text="{}")
    with pytest.raises(MachineryError):
        job.result()
    assert (trial_dir / "result.json").read_text() == "precious"


def test_who_waits_is_woken_once_when_it_ends(executor: Executor, trial_dir: Path) -> None:
    told: list[str] = []
    job = submit(executor, trial_dir, hostile.hold)
    job.ended.add_done_callback(lambda _: told.append("while it ran"))
    assert told == []
    hostile.let_go(trial_dir)
    wait_until(lambda: bool(told))
    assert job.done()
    job.ended.add_done_callback(lambda _: told.append("after it"))
    assert told == ["while it ran", "after it"]


def test_a_cancelled_one_of_several_wakes_who_waits(executor: Executor, tmp_path: Path) -> None:
    told: list[int] = []
    first = submit(executor, tmp_path / "first", hostile.hold)
    others = [submit(executor, tmp_path / str(n), hostile.nap, s=60) for n in range(2)]
    for number, job in enumerate(others):
        job.ended.add_done_callback(lambda _, number=number: told.append(number))  # type: ignore[misc]
        job.cancel()
    wait_until(lambda: sorted(told) == [0, 1])
    for job in others:
        with pytest.raises(TrialAborted):
            job.result()
    hostile.let_go(tmp_path / "first")
    assert first.result().result.status == "crash"


def test_limits_are_kept_though_nobody_asks(executor: Executor, trial_dir: Path) -> None:
    for wall_s in (2, 8, 32, 128):  # a busy machine takes longer to start all four
        folder = trial_dir.with_name(f"{wall_s}")
        hostile.arm(folder, hostile.spread, stay=True, deaf=True)
        job = executor.submit(trial_spec(wall_s=wall_s), folder)
        told: list[bool] = []
        job.ended.add_done_callback(lambda _, told=told: told.append(True))  # type: ignore[misc]
        wait_until(lambda told=told: bool(told))
        assert job.result().result.status == "timeout"
        assert job.result().wall_s >= wall_s
        if len(noted(folder)) == 4:
            break
    assert not any(map(alive, noted(folder)))


def test_a_cancelled_trial_leaves_nothing(executor: Executor, trial_dir: Path) -> None:
    job = spread(executor, trial_dir)
    job.cancel()
    job.cancel()
    for _ in range(2):
        with pytest.raises(TrialAborted):
            job.result()
        assert not any(map(alive, noted(trial_dir)))
    assert not (trial_dir / "result.json").exists()
    job.cancel()
    after = submit(executor, trial_dir.with_name("after"), hostile.nap, s=0).result()
    assert after.result.status == "crash"


def test_what_has_ended_cannot_be_cancelled(executor: Executor, trial_dir: Path) -> None:
    expected = trial_ok(trial_spec())
    text = expected.model_dump_json()
    job = submit(executor, trial_dir, hostile.leave_result, text=text)
    job.wait()
    job.cancel()
    assert same(job.result(), expected)


def test_closing_cancels_and_leaves_nothing(fresh: Executor, tmp_path: Path) -> None:
    running = spread(fresh, tmp_path / "running")
    waiting = submit(fresh, tmp_path / "waiting", hostile.nap, s=60)
    fresh.close()
    fresh.close()
    assert not any(map(alive, noted(tmp_path / "running")))
    for job in (running, waiting):
        with pytest.raises(TrialAborted):
            job.result(0)
    with pytest.raises(MachineryError):
        submit(fresh, tmp_path / "late", hostile.nap, s=0)


def test_what_is_submitted_during_close_ends_or_is_refused(fresh: Executor, tmp_path: Path) -> None:
    jobs: list[Job] = []
    refusals: list[Exception] = []

    def submit_until_refused(folder: Path) -> None:
        try:
            for number in count():
                jobs.append(fresh.submit(trial_spec(trial_id=f"t{number}"), folder / str(number)))
        except Exception as error:  # noqa: BLE001 (which one is the question)
            refusals.append(error)

    folders = [tmp_path / str(number) for number in range(4)]
    threads = [Thread(target=submit_until_refused, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(jobs) > 4)
    fresh.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in refusals] == [MachineryError] * 4
    assert all(job.done() for job in jobs)


def test_closing_does_not_wait_for_a_start(fresh: Executor, tmp_path: Path) -> None:
    job = submit(fresh, tmp_path / "trial", hostile.nap, s=60)
    fresh.close()
    with pytest.raises(TrialAborted):
        job.result(0)


def test_every_executor_that_can_be_chosen_is_held_to_this() -> None:
    assert set(EXECUTORS) <= {name.split()[0] for name in MAKERS}


def test_another_name_is_refused() -> None:
    with pytest.raises(SettingsError):
        choose_executor("pbs", allow_unsandboxed=True)
