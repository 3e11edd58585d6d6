"""An attribution on several lanes has the same runs in the same order, and the same worths."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest

from agent.search.campaign import Campaign
from agent.search.trials import TrialRunner
from funnel.attribution.experiment import Attribution
from funnel.attribution.plan import AttributionPlan
from funnel.attribution.result import AttributionResult
from tests.agent.search.test_calibration import NoMeter, campaign
from tests.support.timed import Onlooker, Plan
from tests.support.trials import trial_ok
from trainer.spec import TrialOk, TrialSpec, gpt
from trajectory.rows import AttributionRow


def result(spec: TrialSpec) -> TrialOk:
    config = gpt(spec.config)
    rng = Random(f"{config.config_hash}:{spec.seed}")
    score = 3 + math.log10(config.lr) ** 2 / 10 + config.weight_decay + rng.gauss(0, 0.01)
    return trial_ok(spec, val_bpb=score, train_s=rng.uniform(1, 9))


def attribution(opened: Campaign) -> Plan:
    winner = opened.menu.apply(opened.menu.baseline, {"lr": 0.006, "weight_decay": 0.05})
    plan = AttributionPlan.of(
        opened.menu, winner, budget=opened.settings.budget, steps=60, seeds=(1, 2, 3)
    )

    def work(runner: TrialRunner, onlooker: Onlooker) -> AttributionResult:
        return Attribution(
            campaign=opened, runner=runner, watcher=onlooker, meter=NoMeter(), plan=plan
        ).run()

    return Plan(result, work, opened)


def _runs(plan: Plan) -> list[tuple[str, int]]:
    rows = [row for row in plan.rows() if isinstance(row, AttributionRow)]
    return [(row.config_hash, row.trial.seed) for row in rows]


@pytest.mark.parametrize("lanes", [2, 3, 16])
def test_lanes_change_nothing_that_it_finds(lanes: int, tmp_path: Path) -> None:
    found, order = [], []
    for at_once in (1, lanes):
        with campaign(tmp_path / str(at_once)) as opened:
            plan = attribution(opened)
            worths, onlooker = plan.done(at_once)
            found.append(worths)
            order.append(_runs(plan))
            plan.nothing_was_dropped()
            assert onlooker.most >= min(at_once, 12)
    assert found[0] == found[1]
    assert order[0] == order[1]
    assert len(order[0]) == 4 * 3


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("after", [1, 4, 6])
def test_stopped_it_takes_up_what_had_finished(kills: bool, after: int, tmp_path: Path) -> None:
    with campaign(tmp_path / "whole") as opened:
        expected, _ = attribution(opened).done(1)
    with campaign(tmp_path / "stopped") as opened:
        attribution(opened).stopped(3, after=after, kills=kills)
    with campaign(tmp_path / "stopped") as opened:
        finished = {one.parent.name for one in (opened.directory / "trials").glob("*/result.json")}
        plan = attribution(opened)
        assert plan.done(3)[0] == expected
        plan.nothing_was_dropped()
        rows = [row for row in plan.rows() if isinstance(row, AttributionRow)]
    assert finished <= {row.trial.trial_id for row in rows}
    assert len({(row.config_hash, row.trial.seed) for row in rows}) == len(rows) == 12
