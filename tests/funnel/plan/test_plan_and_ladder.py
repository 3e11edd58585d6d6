"""The campaign's ladder determines parts of the launch plan."""

from pathlib import Path
from typing import Any

import pytest

from agent.commands.launch.handoff import epochs_of
from funnel.ladder.points import LadderPoint
from funnel.ladder.result import LadderResult
from funnel.plan.case import LaunchCase, read_case
from funnel.plan.checks import day_code
from funnel.plan.handoff import Handoff
from funnel.plan.handoff_files import handoff_files
from funnel.plan.recipe import departures
from funnel.plan.risks import forecast_risks
from funnel.targets.shape import size_text
from tests.funnel.forecast.test_ladder_forecast import NEAR, forecast_of
from tests.support import plans
from tests.support.ladder_worlds import plan as ladder_plan
from tests.support.present import known


def ladder_of(case: LaunchCase, rungs: int) -> LadderResult:
    """Return a ladder of a few runs, whose curves are the long runs'."""
    best = case.candidates[0]
    trial_id = case.long_runs[0].rows[0].trial.trial_id
    made = [
        LadderPoint(
            recipe="winner", rung=rung, params=100_000 * rung, length=1_000_000 * rung,
            tokens=1_000_000 * rung, steps=1000, flops=6e11 * rung**2, seed=1,
            val_bpb=2.0 - 0.1 * rung, config=best.config, trial_id=trial_id,
        )
        for rung in range(1, rungs + 1)
    ]  # fmt: skip
    return LadderResult(
        plan=ladder_plan(4, 0.2), points=tuple(made), left_out=(), missing=0, winner=None,
        baseline=None, no_law=None, lead=None, predicted=None,
    )  # fmt: skip


def plan_of(case: LaunchCase, ladder: LadderResult | None, **wishes: Any) -> Handoff:
    return plans.plan_of(case, "llama-1b", ladder=ladder, **wishes)


@pytest.mark.parametrize("rungs", [0, 2])
def test_without_a_law_there_is_no_forecast(stressed: Path, tmp_path: Path, rungs: int) -> None:
    case = read_case(stressed)
    plan = plan_of(case, ladder_of(case, rungs))
    assert plan.forecast is None
    files = handoff_files(plan, tmp_path)
    assert not any(name.startswith("forecast") for name in files)
    assert b"autoresearch verify" in files["preflight.sh"]


def test_a_forecast_is_of_the_whole_run_and_of_a_day(stressed: Path, tmp_path: Path) -> None:
    case = read_case(stressed)
    plan = plan_of(case, ladder_of(case, 5), mfu=1.0)
    forecast = known(plan.forecast)
    assert forecast.points[-1].tokens == plan.winner.schedule.tokens
    files = handoff_files(plan, tmp_path)
    assert {"forecast.json", "forecast.png"} <= set(files)
    assert b"(forecast.png)" in files["README.md"]
    assert b"autoresearch verify" in files["preflight.sh"]
    short = plan.booking.target.model_copy(update={"token_budget": 10**9})
    brief = plans.plan_of(case, short, ladder=ladder_of(case, 5), mfu=1.0)
    assert brief.booking.compute.hours < 2
    assert known(brief.forecast).first_day_tokens == forecast.first_day_tokens


def test_rules_other_than_the_rungs_are_named_and_a_risk_of_the_forecast(stressed: Path) -> None:
    case = read_case(stressed)
    usual = plan_of(case, None, batch=None).winner
    bounded = [f"weight_decay bounded at {0.3:g}, there as carried"]
    assert list(departures(usual)) == bounded
    asked = plan_of(case, None, batch=None, lr_rule="sqrt_width").winner
    assert list(departures(asked)) == ["width by sqrt_width, there by mup", *bounded]
    told = [" ".join(forecast_risks(one, forecast_of(NEAR), "")) for one in (usual, asked)]
    assert ["width by sqrt_width, there by mup" in text for text in told] == [False, True]
    larger = plan_of(case, None, batch=4 * usual.schedule.batch).winner
    *_, said = departures(larger)
    assert said.startswith(f"a step of {larger.schedule.tokens_per_step:,} tokens, where step_law")


def test_the_days_check_asks_for_0_only_where_a_day_can_tell() -> None:
    forecast = forecast_of(NEAR)
    point = known(forecast.telling_point)
    for day, code in (
        (point.tokens, "0"),
        (point.tokens - 1, f"3 and not 1 (0 not before {size_text(point.tokens)} tokens)"),
    ):
        assert day_code(forecast.model_copy(update={"first_day_tokens": day})) == code


def test_how_often_the_corpus_is_gone_through_goes_by_bytes(stressed: Path) -> None:
    case = read_case(stressed)
    corpus = case.row.corpus
    own = corpus.train_bytes / corpus.train_tokens
    as_here, larger = (plan_of(case, None, bytes_per_token=size) for size in (None, 2 * own))
    assert epochs_of(larger) == pytest.approx(2 * epochs_of(as_here))
