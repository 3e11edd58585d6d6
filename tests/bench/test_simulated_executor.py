"""Test the executor contract on the simulated executor, which trains nothing.

The parts about processes are tested on the other executors, in tests/contracts.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError, SpecError
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.trials import trial_spec
from tests.support.worlds import STEPS, RateWorld
from trainer.isolation.trial_files import finished_trial, read_curve
from trainer.spec import Budget, Config, PruneRule, TrialFailed, TrialOk, TrialSpec

WORLD = RateWorld(0.01, curves=True)
TRIAL = "t000001"


def spec_of(lr: float = 1e-3, seed: int = 1, **changes: object) -> TrialSpec:
    config = WORLD.menu.apply(WORLD.menu.baseline, {"lr": lr})
    return trial_spec(trial_id=TRIAL, config=config, seed=seed, **changes)


def test_a_trial_has_ended_when_it_is_submitted(tmp_path: Path) -> None:
    with SimulatedExecutor(WORLD) as executor:
        job = executor.submit(spec_of(), tmp_path / TRIAL)
        assert job.done()
        finished = job.result()
        assert isinstance(finished.result, TrialOk)
        assert job.result() == finished
        assert finished.wall_s == finished.result.train_s == 2.0, "simulated, not the clock's"
        assert pickle.loads(pickle.dumps(finished)) == finished


def test_points_come_once_in_order_and_all_of_them(tmp_path: Path) -> None:
    with SimulatedExecutor(WORLD) as executor:
        job = executor.submit(spec_of(), tmp_path / TRIAL)
        points = job.points()
        assert [point.step for point in points] == list(range(1, STEPS + 1))
        assert job.points() == ()
        assert read_curve(tmp_path / TRIAL) == list(points)


def test_it_leaves_what_a_resumed_campaign_takes_up(tmp_path: Path) -> None:
    spec = spec_of()
    with SimulatedExecutor(WORLD) as executor:
        result = executor.submit(spec, tmp_path / TRIAL).result().result
    assert finished_trial(tmp_path / TRIAL) == (spec, result)


def test_the_same_trial_has_the_same_outcome_and_another_seed_another(tmp_path: Path) -> None:
    with SimulatedExecutor(WORLD) as executor:
        found = [
            executor.submit(spec_of(seed=seed), tmp_path / str(number)).result().result
            for number, seed in enumerate((1, 1, 2))
        ]
    assert found[0] == found[1] != found[2]


def test_a_failure_is_a_result_and_takes_its_time(tmp_path: Path) -> None:
    with SimulatedExecutor(RateWorld()) as executor:
        finished = executor.submit(spec_of(lr=2.5e-2), tmp_path / TRIAL).result()
    assert isinstance(finished.result, TrialFailed)
    assert (finished.result.status, finished.wall_s) == ("nonfinite", 0.25)


def test_a_rule_stops_what_is_hopeless(tmp_path: Path) -> None:
    rule = PruneRule(at_step=20, window=5, max_loss=4.5)
    with SimulatedExecutor(WORLD) as executor:
        hopeless = executor.submit(spec_of(lr=1e-4, prune=rule), tmp_path / "a").result()
        spared = executor.submit(spec_of(lr=1e-2, prune=rule), tmp_path / "b").result()
    assert isinstance(hopeless.result, TrialFailed)
    assert (hopeless.result.status, hopeless.result.steps) == ("pruned", 20)
    assert hopeless.wall_s == pytest.approx(2.0 * 20 / STEPS)
    assert len(read_curve(tmp_path / "a")) == 20
    assert isinstance(spared.result, TrialOk)


def test_another_budget_is_refused(tmp_path: Path) -> None:
    with SimulatedExecutor(WORLD) as executor:
        job = executor.submit(spec_of(budget=Budget(amount=1000)), tmp_path / TRIAL)
        for _ in range(2):
            with pytest.raises(SpecError, match="knows runs of 60 steps, not of 1000 steps"):
                job.result()


def test_a_directory_with_a_result_is_kept(tmp_path: Path) -> None:
    (tmp_path / TRIAL).mkdir()
    (tmp_path / TRIAL / "result.json").write_text("precious")
    with SimulatedExecutor(WORLD) as executor:
        job = executor.submit(spec_of(), tmp_path / TRIAL)
        with pytest.raises(MachineryError):
            job.result()
    assert (tmp_path / TRIAL / "result.json").read_text() == "precious"


def test_a_closed_one_runs_nothing(tmp_path: Path) -> None:
    executor = SimulatedExecutor(WORLD)
    assert "\n" not in executor.describe()
    executor.close()
    executor.close()
    with pytest.raises(MachineryError):
        executor.submit(spec_of(), tmp_path / TRIAL)
    assert not (tmp_path / TRIAL).exists()


def test_a_config_of_another_shape_has_the_tokens_it_trained_on(tmp_path: Path) -> None:
    config: Config = WORLD.menu.apply(WORLD.menu.baseline, {"batch_size": 4})
    with SimulatedExecutor(WORLD) as executor:
        result = executor.submit(trial_spec(config=config), tmp_path / TRIAL).result().result
    assert isinstance(result, TrialOk)
    assert result.tokens == STEPS * 4 * 128
