import json
import math
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import CampaignError
from funnel.cost.argument import argument_view
from funnel.cost.bill import make_bill
from funnel.cost.figures import View, rounded_usd, usd_text
from funnel.cost.measured import SearchUsage, measured_usage
from funnel.cost.rates import Rates
from tests.support.configs import config
from tests.support.rows import (
    baseline_row,
    campaign_row,
    iteration_row,
    ok,
    stress_row,
    trial,
    write_journal,
)


def report(**changes: Any) -> dict[str, Any]:
    rates = Rates(**changes)
    return view(rates, SearchUsage.supposed(rates)).as_json()


def view(rates: Rates, usage: SearchUsage) -> View:
    return argument_view(rates, usage, make_bill(rates, usage))


def test_the_defaults_give_the_published_values_to_the_cent() -> None:
    published = report()
    assert published["per_iter_usd"] == {
        "spark_electricity_only": 0.0008,
        "spark_total_cost_of_use": 0.0101,
        "h100_single": 0.0611,
        "h100_8gpu_node": 0.4889,
        "h100_8gpu_node_target_scale_60x": 29.3333,
        "h200_single": 0.0856,
    }
    assert published["campaign_100_iters_usd"] == {
        "spark_electricity_only": 0.08,
        "spark_total_cost_of_use": 1.01,
        "h100_single_proxy": 6.11,
        "h100_8gpu_node_proxy": 48.89,
        "h100_8gpu_node_target_scale": 2933.33,
    }
    assert published["final_pretrain_usd"] == {"8xh100_one_week": 3360.00}
    assert (
        published["expected_value_argument"].items()
        >= {
            "wrong_pick_rate": 0.5,
            "expected_loss_from_blind_booking_usd": 1680.00,
            "spark_recipe_search_cost_usd": 1.01,
            "expected_savings_per_campaign_usd": 1678.99,
            "ratio_savings_to_spark_cost": 1669.3,
        }.items()
    )
    assert published["ratios"] == {
        "h100_single_vs_spark_electricity": 80.1,
        "h100_8gpu_vs_spark_total": 48.6,
        "target_scale_8gpu_vs_spark_total": 2916.5,
    }
    assert published["rates"]["spark_total_hourly"] == 0.4115


def test_at_the_break_even_rate_the_savings_are_nothing() -> None:
    search = 100 * 88 / 3600 * (5000 / (1.5 * 8766) + 0.24 * 0.13)
    argument = report()["expected_value_argument"]
    assert argument["break_even_wrong_pick_rate"] == pytest.approx(search / 3360, rel=1e-5)
    assert argument["campaigns_to_pay_for_the_unit"] == pytest.approx(
        5000 / (1680 - 0.0762667), rel=1e-5
    )
    at_break_even = report(wrong_pick_rate=search / 3360)["expected_value_argument"]
    assert at_break_even["expected_savings_per_campaign_usd"] == pytest.approx(0, abs=1e-9)


def test_a_free_desk_a_free_cloud_and_a_faster_one() -> None:
    free_desk = report(spark_capex_usd=0, kwh_usd=0)
    assert free_desk["expected_value_argument"]["ratio_savings_to_spark_cost"] is None
    assert free_desk["ratios"]["h100_8gpu_vs_spark_total"] is None
    faster = report(h100_speedup=10)  # makes the cloud cheaper and nothing else
    search = faster["campaign_100_iters_usd"]
    assert (search["h100_single_proxy"], search["spark_total_cost_of_use"]) == (0.61, 1.01)
    assert faster["per_iter_usd"]["h200_single"] == 0.0086
    free_cloud = report(h100_hourly_usd=0)["expected_value_argument"]
    assert free_cloud["break_even_wrong_pick_rate"] is None
    assert free_cloud["campaigns_to_pay_for_the_unit"] is None
    assert free_cloud["expected_savings_per_campaign_usd"] == -1.01


def test_every_figure_has_a_formula_and_the_report_is_json() -> None:
    out = report()
    for name, formulas in out["formulas"].items():
        assert set(formulas) == set(out[name])
        assert all(formulas.values())
    assert json.loads(json.dumps(out, allow_nan=False)) == out


def write_campaign(directory: Path, *, metered: bool) -> Path:
    """Write a campaign: two baselines of 3.65 s, two iterations of 3.7 s and a long run of 20 s."""
    directory.mkdir()
    other = config(lr=2e-3)
    first = iteration_row(1, other, (trial(3, other, 0, ok(4.2)),))
    stress = stress_row(9, other, 0, 3.9)
    long = stress.trial.model_copy(update={"wall_s": 20.0})
    stress = stress.model_copy(update={"trial": long, "energy_wh": 1.5 if metered else None})
    first = first.model_copy(update={"energy_wh": 0.2 if metered else None})
    baselines = (baseline_row(n, 4.27, n) for n in (1, 2))
    rows = [campaign_row(), *baselines, first, iteration_row(2, None), stress]
    write_journal(directory / "trajectory.jsonl", iter(rows))
    return directory


def test_a_campaign_on_a_cpu_is_its_own_seconds_and_the_rates_draw(tmp_path: Path) -> None:
    rates = Rates(spark_kw=0.1)
    usage = measured_usage(write_campaign(tmp_path / "c", metered=False), rates)
    assert usage.iterations == 2
    assert usage.iter_s == pytest.approx(3.7)
    assert usage.seconds == pytest.approx(2 * 3.65 + 2 * 3.7 + 20)
    assert usage.kwh == pytest.approx(usage.seconds / 3600 * 0.1)
    assert usage.metered_s == 0
    out = view(rates, usage)
    assert any("SPARK_KW" in said for said in out.assumptions)
    money = out.as_json()
    assert money["rates"]["campaign_iters"] == 2
    assert money["rates"]["iter_seconds"] == pytest.approx(3.7)
    assert money["campaign_2_iters_usd"]["h100_single_proxy"] == rounded_usd(
        usage.seconds / 3600 * 2.5
    )
    assert money["campaign_2_iters_usd"]["spark_electricity_only"] > 0, "small is not nothing"


def test_metered_energy_is_taken_row_by_row(tmp_path: Path) -> None:
    usage = measured_usage(write_campaign(tmp_path / "c", metered=True), Rates(spark_kw=0.36))
    unmetered_s = 2 * 3.65 + 3.7
    assert usage.metered_s == pytest.approx(3.7 + 20)
    assert usage.kwh == pytest.approx((0.2 + 1.5) / 1000 + unmetered_s / 3600 * 0.36)
    assert usage.stress_runs == 1
    assert usage.machine == "Intel(R) Xeon(R) Platinum 8488C"


def test_a_campaign_without_an_iteration_is_refused(tmp_path: Path) -> None:
    write_journal(tmp_path / "trajectory.jsonl", iter([campaign_row(), baseline_row(1, 4.27, 0)]))
    with pytest.raises(CampaignError):
        measured_usage(tmp_path, Rates())


@pytest.mark.parametrize(
    ("usd", "text"), [(1678.9917, "$1,678.99"), (-0.5, "-$0.50"), (0.00076267, "$0.00076")]
)
def test_money_is_written_to_the_cent_and_small_money_still_seen(usd: float, text: str) -> None:
    assert usd_text(usd) == text
    assert math.copysign(1, rounded_usd(usd)) == math.copysign(1, usd)
