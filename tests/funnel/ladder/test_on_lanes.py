"""On several lanes the journal holds every run of the prediction before the largest rung's runs."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from agent.search.campaign import Campaign
from agent.search.trials import TrialRunner
from funnel.ladder.experiment import Ladder
from funnel.ladder.points import LadderLog
from funnel.ladder.result import LadderResult
from funnel.stress import long_runs
from tests.agent.search.test_calibration import campaign
from tests.support.ladder_worlds import PACE, plan
from tests.support.simulated.night import NoMeter
from tests.support.timed import Onlooker, Plan
from tests.support.trials import trial_ok
from trainer.schema import TrialFailed, TrialOk, TrialSpec, gpt
from trajectory.rows import LadderPlanRow, LadderPredictionRow, LadderRow, StressVerdict


@pytest.fixture(scope="module")
def ladder_plan() -> LadderPlanRow:
    return plan(4, 0.2)


@pytest.fixture(autouse=True)
def every_run_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the verdict: these runs have no curves, and the tests do not depend on it."""
    verdict = StressVerdict(outcome="survives", explanation="")
    monkeypatch.setattr(long_runs, "judge_run", lambda *_curve, **_run: verdict)


def result(spec: TrialSpec) -> TrialOk | TrialFailed:
    config = gpt(spec.config)
    rng = Random(f"{config.config_hash}:{spec.seed}:{spec.steps}")
    score = 2 + 40 * config.d_model**-0.9 + 30 * (spec.steps or 1) ** -0.7 + rng.gauss(0, 1e-3)
    return trial_ok(spec, val_bpb=score, train_s=(spec.steps or 1) * rng.uniform(0.5, 1.5))


def ladder(opened: Campaign, of: LadderPlanRow) -> Plan:
    def work(runner: TrialRunner, onlooker: Onlooker) -> LadderResult:
        return Ladder(
            campaign=opened,
            log=LadderLog.of(opened.journal.rows()),
            plan=of,
            pace=PACE,
            runner=runner,
            watcher=onlooker,
            meter=NoMeter(),
        ).run()

    return Plan(result, work, opened)


def _in_order(made: Plan, of: LadderPlanRow) -> Iterator[LadderRow]:
    """Yield the largest rung's rows, and check their order.

    They follow the prediction that they name, and the prediction follows every other run.
    """
    prediction: LadderPredictionRow | None = None
    others = 0
    for row in made.rows():
        if isinstance(row, LadderPredictionRow):
            assert prediction is None
            prediction = row
            assert others == sum(len(run.seeds) for run in of.runs if run.rung != of.largest)
        elif isinstance(row, LadderRow) and row.rung == of.largest:
            assert prediction is not None
            assert row.prediction_sha256 == prediction.sha256
            yield row
        elif isinstance(row, LadderRow):
            others += 1
            assert prediction is None


def test_lanes_change_nothing_that_it_comes_to(ladder_plan: LadderPlanRow, tmp_path: Path) -> None:
    found, order = [], []
    for at_once in (1, 3):
        with campaign(tmp_path / str(at_once)) as opened:
            made = ladder(opened, ladder_plan)
            came_to, onlooker = made.done(at_once)
            found.append(came_to)
            rows = [row for row in made.rows() if isinstance(row, LadderRow)]
            order.append([(row.config_hash, row.steps, row.trial.seed) for row in rows])
            assert list(_in_order(made, ladder_plan))
            assert onlooker.most >= min(at_once, 2)
            made.check_no_trial_lost()
    assert order[0] == order[1]
    one, several = (
        [(point.recipe, point.params, point.val_bpb) for point in of.points] for of in found
    )
    assert one == several


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("left", [1, 4])
def test_stopped_it_foretells_no_earlier(
    left: int, kills: bool, ladder_plan: LadderPlanRow, tmp_path: Path
) -> None:
    runs = sum(len(run.seeds) for run in ladder_plan.runs)
    with campaign(tmp_path) as opened:
        ladder(opened, ladder_plan).stopped(3, after=runs - left - 1, kills=kills)
    with campaign(tmp_path) as opened:
        made = ladder(opened, ladder_plan)
        made.done(3)
        assert list(_in_order(made, ladder_plan))
        made.check_no_trial_lost()
        rows = [row for row in made.rows() if isinstance(row, LadderRow)]
        assert len({(row.config_hash, row.steps, row.trial.seed) for row in rows}) == len(rows)
