from __future__ import annotations

import pytest

from funnel.cost.gpus import GPUS
from funnel.plan.layout import Cluster
from funnel.plan.operations import (
    Terms,
    interruptions_per_day,
    plan_operations,
    save_interval_h,
)

NODE = Cluster(nodes=1, gpus=8, gpu=GPUS["h100"])
LLAMA_3 = Cluster(nodes=2048, gpus=8, gpu=GPUS["h100"])
SPOT = Terms(spot=True, preemptions_per_day=6)


def test_llama_3s_interruptions_come_out_again() -> None:
    assert interruptions_per_day(Terms(), LLAMA_3) * 54 == pytest.approx(419)
    assert interruptions_per_day(Terms(), NODE) < 0.01
    assert interruptions_per_day(SPOT, NODE) == pytest.approx(6, rel=0.01)
    # Without spot terms no interruptions are expected.
    assert interruptions_per_day(Terms(preemptions_per_day=6), NODE) < 0.01


def test_the_interval_is_youngs_within_an_hour_and_two_saves() -> None:
    assert save_interval_h(Terms(), 112, NODE) == 1
    # 112 GB at 5 GB/s, with six interruptions per day.
    young_s = (2 * 22.4 * 86_400 / interruptions_per_day(SPOT, NODE)) ** 0.5
    assert save_interval_h(SPOT, 112, NODE) == pytest.approx(young_s / 3600)
    often = Terms(spot=True, preemptions_per_day=1000, storage_gb_s=0.5)
    assert save_interval_h(often, 112, NODE) == pytest.approx(2 * 224 / 3600)


def test_what_is_lost_is_added_to_hours_and_money() -> None:
    plan = plan_operations(SPOT, NODE, size_gb=112, every_h=0.5, hours=100, usd_per_h=20)
    a_day = interruptions_per_day(SPOT, NODE)
    lost = 0.7 / 1800 + a_day / 24 * (0.25 + (300 + 22.4) / 3600)
    assert plan.disturbed.share_lost == pytest.approx(lost)
    assert plan.hours == pytest.approx(100 / (1 - lost))
    assert plan.cost_usd == pytest.approx(20 * plan.hours)
    kept = plan_operations(Terms(), NODE, size_gb=112, every_h=1, hours=100, usd_per_h=20)
    assert kept.disturbed.share_lost < 0.001


@pytest.mark.parametrize(
    ("storage_gb_s", "save_s", "timeout_s"), [(0.2, 560, 1680), (5, 22.4, 300)]
)
def test_a_collective_may_take_as_long_as_three_saves(
    storage_gb_s: float, save_s: float, timeout_s: int
) -> None:
    terms = Terms(storage_gb_s=storage_gb_s)
    waits = plan_operations(terms, NODE, size_gb=112, every_h=1, hours=1, usd_per_h=1)
    assert (waits.save_s, waits.timeout_s) == (pytest.approx(save_s), timeout_s)
