import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import TrialWatcher
from agent.search.trials import TrialRunner
from agent.session.own_trainer import one_script
from autoresearch.errors import CampaignError, MachineryError
from tests.support import nights
from tests.support.configs import config
from tests.support.executors import InstantExecutor
from tests.support.races import run_one
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Outcome
from tests.support.trials import trial_ok, trial_spec
from tests.support.worlds import RateWorld
from trainer.executors.base import Finished
from trainer.isolation.outcome import finished_trial
from trainer.isolation.trial_files import TrialFiles
from trainer.schema import AnyConfig, Budget, CurvePoint, TrialOk, TrialSpec
from trajectory.rows import TrialRecord

LONG = {"budget": Budget(amount=1000), "horizon_steps": None}


class Instant(InstantExecutor):
    """An executor whose trials end at once and leave their directories as real ones do."""

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        files = TrialFiles(spec, trial_dir)
        files.write_result(trial_ok(spec))
        files.close()
        return Finished(trial_ok(spec), 1.0)


def short(of: AnyConfig, seed: int) -> TrialSpec:
    return trial_spec(trial_id="", config=of, seed=seed)


def runner(directory: Path, accounted: set[str]) -> TrialRunner:
    return TrialRunner(directory, short, Instant(), accounted, StopRequest(), TrialWatcher())


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    """Return a folder of three short trials on seeds 0 to 2, a long one and an unfinished one."""
    made = runner(tmp_path / "trials", set())
    for seed in range(3):
        run_one(made, config(), seed, "candidate")
    executor = Instant()
    executor.run(
        short(config(), 0).model_copy(update={"trial_id": "t000004", **LONG}),
        tmp_path / "trials" / "t000004",
    )
    (tmp_path / "trials" / "t000005").mkdir()
    (tmp_path / "trials" / "t000005" / "spec.json").write_text("{")
    return tmp_path / "trials"


def test_what_no_row_names_is_left_over_however_its_number_stands(trials: Path) -> None:
    again = runner(trials, {"t000001", "t000003"})
    found = again.orphaned
    assert {name for name, _ in found.finished.values()} == {"t000002", "t000004"}
    assert found.unfinished == ["t000005"]
    none = runner(trials, {f"t{number:06d}" for number in range(1, 6)}).orphaned
    assert (none.finished, none.unfinished) == ({}, [])


def test_a_finished_one_is_taken_up_where_its_spec_is_asked_for(trials: Path) -> None:
    again = runner(trials, {"t000001", "t000003", "t000005"})
    assert run_one(again, config(), 1, "candidate").trial_id == "t000002"
    assert run_one(again, config(), 1, "candidate").trial_id == "t000006"
    assert again.resumed == {"t000002"}


def test_giving_up_one_kind_keeps_the_other(trials: Path) -> None:
    again = runner(trials, {"t000005"})
    given_up = again.orphaned.give_up(lambda spec: spec.budget == Budget())
    assert sorted(given_up) == ["t000001", "t000002", "t000003"]
    assert [name for name, _ in again.orphaned.finished.values()] == ["t000004"]
    assert again.orphaned.give_up(lambda spec: spec.budget == Budget()) == []


def test_ids_go_on_after_the_greatest_on_disk_or_in_a_row(trials: Path) -> None:
    assert run_one(runner(trials, set()), config(), 9, "candidate").trial_id == "t000006"
    assert run_one(runner(trials, {"t1000000"}), config(), 8, "candidate").trial_id == "t1000001"


def test_what_ran_beside_under_another_script_is_not_taken_up(tmp_path: Path) -> None:
    saved_again: list[str] = []

    def check() -> None:
        if saved_again:
            raise CampaignError("the code is another")

    executor, hooks = SimulatedExecutor(nights.WORLD, 4), [one_script(check)]
    many = TrialRunner(tmp_path / "t", short, executor, set(), StopRequest(), TrialWatcher(), hooks)
    base = nights.WORLD.menu.baseline
    specs = [(short(base, seed), "confirm") for seed in range(4)]
    with pytest.raises(CampaignError):
        asyncio.run(many.run_all(specs, lambda record: saved_again.append(record.trial_id)))
    (first,) = saved_again
    folders = sorted((tmp_path / "t").glob("t*"))
    assert len(folders) == 4
    assert [folder.name for folder in folders if finished_trial(folder)] == [first]
    with pytest.raises(CampaignError):
        run_one(many, base, 9, "confirm")
    assert sorted((tmp_path / "t").glob("t*")) == folders, "a trial of another script was started"


class FirstIsLong(RateWorld):
    """A world in which seed 0 takes ten times as long as any other."""

    def __init__(
        self, *, fails_from: int = 100, asks_at: int = 100, stop: StopRequest | None = None
    ) -> None:
        super().__init__()
        self._fails_from = fails_from
        self._asks_at = asks_at
        self._stop = stop

    def outcome(self, spec: TrialSpec) -> Outcome:
        if spec.seed >= self._fails_from:
            raise MachineryError("the device is gone")
        if spec.seed == self._asks_at and self._stop is not None:
            self._stop.ask()
        result, points = super().outcome(spec)
        if spec.seed == 0 and isinstance(result, TrialOk):
            result = result.model_copy(update={"train_s": 10 * result.train_s})
        return result, points


def two_lanes(
    directory: Path, world: RateWorld, stop: StopRequest, take: Callable[[TrialRecord], None]
) -> SimulatedExecutor:
    """Run eleven trials on two lanes, and return these."""
    executor = SimulatedExecutor(world, 2)
    runner = TrialRunner(directory, short, executor, set(), stop, TrialWatcher())
    base = nights.WORLD.menu.baseline
    with stop.deferred():
        asyncio.run(runner.run_all(((short(base, seed), "confirm") for seed in range(11)), take))
    return executor


def test_a_long_trial_ahead_holds_up_no_other_lane(tmp_path: Path) -> None:
    records: list[TrialRecord] = []
    executor = two_lanes(tmp_path / "t", FirstIsLong(), StopRequest(), records.append)
    assert [record.seed for record in records] == list(range(11)), "in the order of the plan"
    assert executor.now_s == records[0].wall_s == 10 * records[1].wall_s


def test_where_the_machinery_fails_behind_a_long_trial_nothing_more_begins(tmp_path: Path) -> None:
    records: list[TrialRecord] = []
    with pytest.raises(MachineryError):
        two_lanes(tmp_path / "t", FirstIsLong(fails_from=3), StopRequest(), records.append)
    assert [record.seed for record in records] == [0, 1, 2], "those ahead of it"
    assert len(list((tmp_path / "t").glob("t*"))) == 4


def test_a_signal_behind_a_long_trial_begins_nothing_more(tmp_path: Path) -> None:
    stop, records = StopRequest(), list[TrialRecord]()
    with pytest.raises(Interrupted):
        two_lanes(tmp_path / "t", FirstIsLong(asks_at=3, stop=stop), stop, records.append)
    assert [record.seed for record in records] == list(range(4)), "all that ran"
    assert len(list((tmp_path / "t").glob("t*"))) == 4
