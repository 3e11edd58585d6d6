"""Check that a calibration on several lanes measures the same configs and concludes the same.

It trains no more than one lane would, except for runs already started when another run failed.
"""

from pathlib import Path

import pytest

from agent.search.calibration import Calibration
from agent.search.calibration_plan import CalibrationPlan
from agent.search.campaign import Campaign
from agent.search.trials import TrialRunner
from tests.agent.search.test_calibration import World, campaign
from tests.support.simulated.night import NoMeter
from tests.support.timed import Onlooker, Plan
from trainer.schema import TrialFailed, TrialOk, TrialSpec
from trajectory.calibrated import Calibrated
from trajectory.rows import CalibrationRow
from trajectory.statistics.fidelity import Resampled


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the bootstrap draws: only conclusions from the same runs are compared."""
    monkeypatch.setattr(Resampled.__init__, "__defaults__", (100, 0))


def calibration(opened: Campaign, world: World, configs: int = 8) -> Plan:
    plan = CalibrationPlan(opened, None, configs=configs, long_steps=1000, long_seeds=1)

    def work(runner: TrialRunner, onlooker: Onlooker) -> Calibrated:
        return Calibration(
            campaign=opened, plan=plan, runner=runner, watcher=onlooker, meter=NoMeter()
        ).run()

    def result(spec: TrialSpec) -> TrialOk | TrialFailed:
        found = world.result(spec)
        if isinstance(found, TrialFailed):
            return found
        return found.model_copy(update={"train_s": float(spec.budget.amount)})

    return Plan(result, work, opened)


def runs(plan: Plan) -> list[CalibrationRow]:
    return [row for row in plan.rows() if isinstance(row, CalibrationRow)]


@pytest.mark.parametrize(
    ("lanes", "breaks"), [(2, ()), pytest.param(16, (60,), marks=pytest.mark.slow)]
)
def test_lanes_change_no_conclusion(lanes: int, breaks: tuple[int, ...], tmp_path: Path) -> None:
    world = World(breaks=breaks)
    configs = 16 if breaks else 8
    with campaign(tmp_path / "one") as opened:
        alone = calibration(opened, world, configs)
        expected, _ = alone.done(1)
        mine = runs(alone)
    with campaign(tmp_path / "several") as opened:
        several = calibration(opened, world, configs)
        found, onlooker = several.done(lanes)
        theirs = runs(several)
        several.check_no_trial_lost()
    assert found == expected
    assert onlooker.most >= min(lanes, 8)
    order = [(row.config_hash, row.run, row.trial.seed) for row in mine]
    others = [(row.config_hash, row.run, row.trial.seed) for row in theirs]
    assert [one for one in others if one in set(order)] == order
    assert others == order or (breaks and set(order) < set(others))
    assert len(set(others)) == len(others)
    assert {row.trial.place is None for row in theirs} == {False}
    assert all(row.energy_wh is None for row in theirs)
