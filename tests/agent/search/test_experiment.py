"""Test what the five experiments share: failed runs, orphaned trials, seeds and lines."""

import io
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from agent.cli import ENTRIES
from agent.search.campaign import Campaign
from agent.search.experiment import PlannedRun, fresh_seeds
from agent.search.trials import TrialRunner
from agent.session.experiments import ExperimentDisplay
from autoresearch.errors import CampaignError
from funnel.attribution.result import Attribution, AttributionPlan, AttributionResult
from funnel.stress import long_runs
from funnel.stress.experiment import StressConfig, StressPlan, StressTest
from tests.agent.search.test_calibration import campaign
from tests.support.memories import MENU
from tests.support.rows import stress_row
from tests.support.simulated.night import NoMeter
from tests.support.timed import Onlooker, Plan
from tests.support.trials import trial_ok, trial_spec
from trainer.schema import Budget, CurvePoint, TrialFailed, TrialOk, TrialSpec
from trajectory.rows import (
    AttributionRow,
    EventRow,
    FinalistsRow,
    StressRow,
    StressVerdict,
)

STEPS = 60
Result = Callable[[TrialSpec], TrialOk | TrialFailed]


def score(spec: TrialSpec) -> TrialOk:
    return trial_ok(spec, val_bpb=3 + spec.config.lr + spec.seed / 1e6, train_s=1 + spec.seed % 3)


def attribution(opened: Campaign, result: Result = score, *, retry_failed: bool = False) -> Plan:
    winner = opened.menu.apply(opened.menu.baseline, {"lr": 0.006, "weight_decay": 0.05})
    plan = AttributionPlan.of(
        opened.menu, winner, budget=opened.settings.budget, steps=STEPS, seeds=(999, 998)
    )

    def work(runner: TrialRunner, onlooker: Onlooker) -> AttributionResult:
        return Attribution(
            campaign=opened,
            runner=runner,
            watcher=onlooker,
            meter=NoMeter(),
            retry_failed=retry_failed,
            plan=plan,
        ).run()

    return Plan(result, work, opened)


def rows_of(plan: Plan) -> list[AttributionRow]:
    return [row for row in plan.rows() if isinstance(row, AttributionRow)]


@pytest.mark.parametrize("name", ["confirm", "calibrate", "stress", "attribute", "ladder"])
def test_every_experiment_has_retry_failed(name: str) -> None:
    options = {option for one in ENTRIES[name].load().params for option in one.opts}
    assert "--retry-failed" in options


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(("status", "rows"), [("crash", 16), ("nonfinite", 8)])
def test_a_failed_run_is_made_again_on_demand_unless_its_loss_was_not_finite(
    status: Any, rows: int, lanes: int, tmp_path: Path
) -> None:
    failed = TrialFailed(status=status, message="a node was lost", steps=3)
    steps = ((lambda _: failed, False, 8), (score, False, 8), (score, True, rows))
    for result, retry_failed, count in (*steps, steps[-1]):
        with campaign(tmp_path) as opened:
            plan = attribution(opened, result, retry_failed=retry_failed)
            found, _ = plan.done(lanes)
            assert (len(rows_of(plan)), found.gain is not None) == (count, count == 16)
            plan.check_no_trial_lost()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_orphan_is_resumed_or_reported(threads: int, tmp_path: Path) -> None:
    with campaign(tmp_path, threads=1) as opened:
        attribution(opened).stopped(3, after=2, kills=True)
        trials = opened.directory / "trials"
        finished = {path.parent.name for path in trials.glob("*/result.json")}
    with campaign(tmp_path, threads=threads) as opened:
        plan = attribution(opened)
        named = {row.trial.trial_id for row in rows_of(plan)}
        orphans = finished - named
        assert orphans
        plan.done(1)
        plan.check_no_trial_lost()
        resumed = {row.trial.trial_id for row in rows_of(plan)} & orphans
        reported = {
            name for row in plan.rows() if isinstance(row, EventRow) for name in row.trial_ids
        }
    assert (resumed, orphans & reported) == ((orphans, set()) if threads == 1 else (set(), orphans))


@pytest.fixture
def every_run_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = StressVerdict(outcome="survives", explanation="")
    monkeypatch.setattr(long_runs, "judge_run", lambda *_curve, **_run: verdict)


def stress(opened: Campaign) -> Plan:
    configs = [opened.menu.apply(opened.menu.baseline, {"lr": lr}) for lr in (0.004, 0.003, 0.002)]
    plan = StressPlan(
        steps=STEPS,
        seeds=(900, 901, 902),
        configs=tuple(
            StressConfig(config, config.config_hash, rank, "candidate", in_spread=False)
            for rank, config in enumerate(configs, start=1)
        ),
        carried=1,
    )

    def work(runner: TrialRunner, onlooker: Onlooker) -> FinalistsRow:
        return StressTest(
            campaign=opened, runner=runner, watcher=onlooker, meter=NoMeter(), plan=plan
        ).run()

    return Plan(score, work, opened)


@pytest.mark.usefixtures("every_run_survives")
@pytest.mark.parametrize("lanes", [1, 4])
def test_who_gets_further_seeds_waits_for_the_first(lanes: int, tmp_path: Path) -> None:
    with campaign(tmp_path) as opened:
        plan = stress(opened)
        found, _ = plan.done(lanes)
        rows = [row for row in plan.rows() if isinstance(row, StressRow)]
        assert [row.trial.seed for row in rows] == [900, 900, 900, 901, 902]
        (best,) = {row.config_hash for row in rows[3:]}
        assert best == rows[2].config_hash == found.finalists[0].config_hash
        before = plan.rows()
        assert stress(opened).done(lanes)[0] == found
        assert plan.rows() == before


def with_seeds(used: set[int], stressed: Collection[int] = (), campaign_seed: int = 0) -> Any:
    entry = SimpleNamespace(scores=dict.fromkeys(used, 3.0), failed_seeds={})
    rows = [SimpleNamespace(trial=SimpleNamespace(seed=seed)) for seed in stressed]
    return SimpleNamespace(
        evidence=SimpleNamespace(configs={"a": entry}),
        settings=SimpleNamespace(seed=campaign_seed),
        results=SimpleNamespace(newest=lambda _kind: rows),
    )


FRESH_SEEDS = [
    (with_seeds({0, 1, 2}), "stress", (900, 901)),
    (with_seeds({7900, 7902}, campaign_seed=7), "stress", (7901, 7903)),
    (with_seeds({0}, {900, 901}), "stress", (900, 901)),
    (with_seeds({0}, {900, 901}), "ladder", (902, 903)),
    (with_seeds({3, 997}, {999, 900}), "attribution", (998, 996, 995)),
    (with_seeds({801}), "confirm", (800, 802)),
]


def test_seeds_are_ones_that_chose_nothing() -> None:
    for opened, experiment, seeds in FRESH_SEEDS:
        assert fresh_seeds(opened, experiment, len(seeds)) == seeds
    with pytest.raises(CampaignError, match="--seeds"):
        fresh_seeds(with_seeds({900}), "stress", 100)


def test_with_several_at_once_every_line_names_its_run() -> None:
    console = Console(file=io.StringIO(), width=40)
    display = ExperimentDisplay(console, lines=20)
    runs = [
        PlannedRun(
            trial_spec(trial_id="", config=MENU.baseline, seed=seed, budget=Budget(amount=60)),
            f"config {seed}",
            None,
        )
        for seed in (1, 2)
    ]
    for number, run in enumerate(runs, start=1):
        display.run_begins(run, number, 2)
        named = run.spec.model_copy(update={"trial_id": f"t{number:06d}"})
        display.trial_started(named, "stress")
    for step in (50, 60):
        for number in (2, 1):
            point = CurvePoint(step=step, loss=step / 10 + number, elapsed_s=1.0)
            display.trial_point(f"t{number:06d}", point)
    for number, run in enumerate(runs, start=1):
        result = trial_ok(run.spec)
        row = stress_row(number, run.spec.gpt, run.spec.seed, result, outcome="diverges")
        display.run_ended(run, row)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[:2] for line in lines] == [
        *(["run", number] for number in "12"),
        *(["run", number] for _ in (50, 60) for number in "21"),
        *(["run", number] for number in "12"),
    ]
