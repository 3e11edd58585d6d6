from typing import Any

import pytest

from agent.settings.environment import Rates
from funnel.cost.gpus import GPUS
from funnel.cost.ownership import cluster_view


def cluster(gpu: str = "h100", gpus: int = 8, **changes: Any) -> tuple[dict[str, Any], bool]:
    """Return the exact figures, and whether owning pays off within the units' life."""
    view = cluster_view(Rates(**changes), GPUS[gpu], gpus)
    (section,) = view.sections
    return {f.key: f.value for f in section.figures}, view.inputs["pays_within_life"]


def test_a_month_of_each_by_hand() -> None:
    share = 300 / 989.4
    month, _ = cluster("h200", 2, gpu_utilisation=share, spark_tflops=40, spark_scaling=0.8)
    assert month["units"] == 19  # 600 / 32 = 18.75
    assert month["owned_amortized_usd"] == pytest.approx(19 * 5000 / 18)
    assert month["owned_power_usd"] == pytest.approx(19 * 0.24 * 730.5 * 0.13)
    assert month["rented_usd"] == pytest.approx(2 * 3.5 * 730.5)
    assert month["owned_usd"] == month["owned_amortized_usd"] + month["owned_power_usd"]


def test_at_the_break_even_month_both_have_cost_the_same() -> None:
    month, _ = cluster()
    months = month["break_even_months"]
    owned = month["owned_capex_usd"] + months * month["owned_power_usd"]
    assert owned == pytest.approx(months * month["rented_usd"])
    never, pays = cluster(h100_hourly_usd=0.01)  # the power is dearer than the rent
    assert (never["break_even_months"], pays) == (None, False)


def test_within_its_life_exactly_where_the_amortised_month_is_cheaper() -> None:
    for share in (0.02, 0.05, 0.1, 0.2, 0.4):
        month, pays = cluster(gpu_utilisation=share)
        assert pays == (month["owned_usd"] <= month["rented_usd"])
