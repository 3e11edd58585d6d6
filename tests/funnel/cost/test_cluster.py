import pytest

from agent.settings.rates import Rates
from funnel.cost.cluster import (
    UNIT_TFLOPS,
    ClusterQuestion,
    cluster_assumptions,
    cluster_section,
    compare_cluster,
    usual_tflops,
)

USUAL = usual_tflops("h100")


def test_a_month_of_each_by_hand() -> None:
    asked = ClusterQuestion(gpus=2, gpu="h200", gpu_tflops=300, unit_tflops=40, scaling=0.8)
    answer = compare_cluster(Rates(), asked)
    assert answer.units == 19  # 600 / 32 = 18.75
    assert answer.owned_amortized_usd == pytest.approx(19 * 5000 / 18)
    assert answer.owned_power_usd == pytest.approx(19 * 0.24 * 730.5 * 0.13)
    assert answer.rented_usd == pytest.approx(2 * 3.5 * 730.5)
    assert answer.owned_usd == answer.owned_amortized_usd + answer.owned_power_usd


def test_at_the_break_even_month_both_have_cost_the_same() -> None:
    answer = compare_cluster(Rates(), ClusterQuestion(gpu_tflops=100))
    months = answer.break_even_months
    assert months is not None
    owned = answer.owned_capex_usd + months * answer.owned_power_usd
    assert owned == pytest.approx(months * answer.rented_usd)


def test_within_its_life_exactly_where_the_amortised_month_is_cheaper() -> None:
    for gpu_tflops in (20, 50, 100, 150, 200, 400):
        answer = compare_cluster(Rates(), ClusterQuestion(gpu_tflops=gpu_tflops))
        assert answer.pays_within_life == (answer.owned_usd <= answer.rented_usd)
        assert ("rent" in answer.verdict()) == (not answer.pays_within_life)


def test_power_dearer_than_rent_never_pays() -> None:
    rates = Rates(h100_hourly_usd=0.01)
    answer = compare_cluster(rates, ClusterQuestion(gpu_tflops=USUAL))
    assert answer.break_even_months is None
    assert "never pays" in answer.verdict()
    section = cluster_section(rates, ClusterQuestion(gpu_tflops=USUAL), answer)
    assert section.values()["break_even_months"] is None


def test_the_units_default_speed_is_the_published_measurement() -> None:
    assert pytest.approx(12_820 * 6 * 354.6e6 / 1e12) == UNIT_TFLOPS
    stated = cluster_assumptions(ClusterQuestion(gpu_tflops=USUAL))
    assert any("12,820" in line for line in stated)
    other = cluster_assumptions(ClusterQuestion(unit_tflops=30, gpu_tflops=300, scaling=0.9))
    assert not any("12,820" in line or "assumed" in line or "perfectly" in line for line in other)
