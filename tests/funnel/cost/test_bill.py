"""Every command reports the same bill, and the cost of preemption agrees with a simulation."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agent.settings.environment import Rates
from autoresearch.errors import HandoffError, SettingsError
from funnel.cost.bill import CloudRun, Preemption, make_bill, planned_run
from funnel.cost.measured import Concordance, Measured, Usage
from tests.support.campaigns import installed

ODD = {
    "KWH_USD": "0.37",
    "SPARK_CAPEX_USD": "4321",
    "H200_HOURLY_USD": "3.33",
    "WRONG_PICK_RATE": "0.4",
    "WRONG_PICK_RATE_AFTER": "0.1",
    "PREEMPTIONS_PER_DAY": "2",
    "RESTART_HOURS": "0.5",
}
"""Rates that differ from every default, so that a price taken from elsewhere shows."""


def run(home: Path, *arguments: str | Path) -> dict[str, Any]:
    done = installed(*arguments, "--json", home=home, **ODD)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.slow
def test_cost_the_plan_and_the_report_name_one_price_for_each_thing(
    stressed: Path, tmp_path: Path
) -> None:
    asked = ("--target", "llama-7b", "--gpu", "h200", "--spot", "--campaign", stressed)
    plan = run(tmp_path, "handoff", *asked)
    money = plan["money"]
    cost = run(tmp_path, "cost", "--campaign", stressed, "--handoff", "handoff")
    bill = cost["bill"]
    report = run(tmp_path, "report", "--campaign", stressed, "--out", tmp_path / "report")
    told = report["summary"]["bill"]
    # All fields are equal except the source, which names where the bill came from.
    assert bill["run"].pop("source") == "handoff/plan.json"
    assert money["run"].pop("source") == "this plan"
    assert bill == money
    assert told == money["search"]
    # The same figures, computed by hand from the odd rates.
    hours = told["seconds"] / 3600
    assert told["electricity_usd"] == pytest.approx(told["kwh"] * 0.37)
    assert told["write_off_usd"] == pytest.approx(hours * 4321 / (1.5 * 8766))
    kept = json.loads((tmp_path / "handoff" / "recipe.json").read_text())["operations"]
    assert kept["interruptions_per_day"] == pytest.approx(2, abs=0.01), "hardware's come on top"
    assert kept["interruptions_per_day"] > 2
    lost = kept["interruptions_per_day"] / 24 * (
        plan["checkpoints"]["every_hours"] / 2 + kept["restart_s"] / 3600
    ) + kept["pause_async_s"] / (3600 * plan["checkpoints"]["every_hours"])
    assert money["run"]["usd"] == pytest.approx(plan["compute"]["hours"] / (1 - lost) * 8 * 3.33)
    assert money["run"]["usd"] == pytest.approx(kept["cost_usd"])
    assert cost["final_pretrain_usd"]["planned_run"] == pytest.approx(
        plan["compute"]["cost_usd"], abs=0.01
    )
    argument = cost["expected_value_argument"]
    assert argument["expected_savings_with_risk_left_usd"] == pytest.approx(
        (0.4 - 0.1) * money["run"]["usd"] - told["usd"], abs=0.01
    )
    page = (tmp_path / "report" / "report.html").read_text()
    assert "The whole bill: cost of use" in page
    readme = (tmp_path / "handoff" / "README.md").read_text()
    assert "(an assumption, WRONG_PICK_RATE)" in readme
    assert "autoresearch stress --spread 6 does" in readme, "what was not measured is said"


def test_a_plan_of_another_campaign_is_refused(stressed: Path, tmp_path: Path) -> None:
    (tmp_path / "handoff").mkdir()
    run_ = CloudRun.supposed(Rates()).model_dump()
    plan = {"campaign": {"id": "another"}, "money": {"run": run_}}
    (tmp_path / "handoff/plan.json").write_text(json.dumps(plan))
    assert planned_run(tmp_path / "handoff/plan.json")[0] == "another"
    done = installed("cost", "--campaign", stressed, "--handoff", "handoff", home=tmp_path)
    assert done.returncode == 1
    assert "is the launch plan of the campaign another" in done.stderr


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"campaign": {"id": "c"}, "money": {"run": {"hours": 1}}}']
)
def test_a_file_that_is_no_plan_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(HandoffError, match=r"plan\.json"):
        planned_run(tmp_path / "plan.json")
    with pytest.raises(HandoffError):
        planned_run(tmp_path / "nowhere.json")


def simulated_hours(away: Preemption, hours: float, rng: random.Random) -> float:
    """Simulate a run that is preempted at random and resumes from its last checkpoint.

    A restart can be preempted, too.
    """
    clock = done = saved = 0.0
    next_loss = rng.expovariate(away.per_day / 24)
    while done < hours:
        until_save = min(saved + away.checkpoint_hours, hours) - done
        if clock + until_save < next_loss:
            clock, done = clock + until_save, done + until_save
            saved = done
        else:
            clock, done = next_loss + away.restart_hours, saved
            next_loss = clock + rng.expovariate(away.per_day / 24)
    return clock


@pytest.mark.parametrize(
    ("per_day", "checkpoint_hours", "restart_hours"), [(1, 1, 0.25), (4, 1, 0.25), (2, 2, 0.5)]
)
def test_preemption_costs_what_a_simulation_says(
    per_day: float, checkpoint_hours: float, restart_hours: float
) -> None:
    """The formula is first order in the number of losses per interval. It is within 1% here, and
    low by the second loss that an interval may see."""
    away = Preemption(
        per_day=per_day, checkpoint_hours=checkpoint_hours, restart_hours=restart_hours
    )
    rng = random.Random(1)
    hours = 500.0
    mean = sum(simulated_hours(away, hours, rng) for _ in range(300)) / 300
    assert away.expected_hours(hours) == pytest.approx(mean, rel=0.015)
    assert away.expected_hours(hours) > hours * 1.02, "and it is no small thing"


def test_what_is_never_taken_away_takes_its_hours_and_what_always_is_is_refused() -> None:
    assert Preemption().expected_hours(168) == 168
    with pytest.raises(SettingsError, match="PREEMPTIONS_PER_DAY"):
        Preemption(per_day=48).expected_hours(168)
    spot = CloudRun.supposed(Rates(preemptions_per_day=4))
    firm = CloudRun.supposed(Rates(h100_hourly_usd=spot.firm_hourly_usd, preemptions_per_day=0))
    assert firm.usd == pytest.approx(spot.usd)


def test_what_was_measured_stands_beside_and_changes_no_savings() -> None:
    seen = Measured(
        concordance=Concordance(value=0.83, lo=0.55, hi=0.97, configs=8, long_steps=1000),
        lead="a sentence",
    )
    fidelity, lead = seen.lines()
    assert "83% of the time (55% to 97%, 8 configs)" in fidelity
    assert lead == "a sentence"
    rates = Rates(wrong_pick_rate=0.5, wrong_pick_rate_after=0.2)
    bill = make_bill(rates, Usage.supposed(rates), CloudRun.supposed(rates), seen)
    assert bill.expected_savings_usd == pytest.approx(0.3 * 3360 - 1.0058, abs=0.001)
    assert len(list(Measured().lines())) == 2
