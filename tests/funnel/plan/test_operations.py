"""Test what a run costs in hours and money on the GPUs that are booked."""

import pytest

from funnel.cost.gpus import GPUS
from funnel.plan.booking import (
    Booking,
    Terms,
    interruptions_per_day,
    make_booking,
    make_schedule,
    plan_checkpoints,
    plan_operations,
    save_interval_h,
)
from funnel.plan.layout import Cluster, Layout
from funnel.plan.projection import project
from funnel.targets.architecture import load_target
from tests.support.configs import config

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
def test_the_timeout_is_three_saves(storage_gb_s: float, save_s: float, timeout_s: int) -> None:
    terms = Terms(storage_gb_s=storage_gb_s)
    waits = plan_operations(terms, NODE, size_gb=112, every_h=1, hours=1, usd_per_h=1)
    assert (waits.save_s, waits.timeout_s) == (pytest.approx(save_s), timeout_s)


TARGET = load_target("llama-7b")
LAYOUT = Layout(tensor=2, pipeline=1, data=4, micro_batch=1, global_batch=128)


def booking(mfu: float = 0.4) -> Booking:
    return make_booking(TARGET, NODE, mfu=mfu, gpu_hourly_usd=2.5)


def test_hours_and_money_are_arithmetic() -> None:
    compute = booking().compute
    per_token = 6 * (6_979_584_000 + 128_256 * 4096) + 12 * 32 * 4096 * 8192
    assert compute.flops_per_token == pytest.approx(per_token, rel=1e-3)
    assert compute.tokens == 20 * TARGET.total_params
    seconds = compute.flops_per_token * compute.tokens / (8 * 989.4e12 * 0.4)
    assert compute.hours == pytest.approx(seconds / 3600)
    assert compute.cost_usd == pytest.approx(seconds / 3600 * 8 * 2.5)
    assert compute.day_usd == 24 * 8 * 2.5
    assert compute.first_day_tokens == pytest.approx(compute.tokens_per_s * 86400, rel=1e-6)
    assert booking(0.2).compute.cost_usd == pytest.approx(2 * compute.cost_usd)
    short = TARGET.model_copy(update={"token_budget": 10**6})
    brief = make_booking(short, NODE, mfu=0.4, gpu_hourly_usd=2.5)
    assert brief.compute.first_day_tokens == 10**6


def test_the_schedule_covers_the_budget_with_the_warm_up_in_proportion() -> None:
    projection = project(config(lr_warmup=10), TARGET, horizon_steps=1000)
    schedule = make_schedule(projection, LAYOUT, batch_carried=1)
    assert schedule.tokens_per_step == 128 * 8192
    assert 0 <= schedule.tokens - TARGET.tokens < schedule.tokens_per_step
    assert schedule.warmup_steps == round(0.01 * schedule.steps)
    assert schedule.batch == 128 * schedule.batch_carried


def test_checkpoints_are_hourly_kept_daily_and_counted() -> None:
    projection = project(config(), TARGET, horizon_steps=1000)
    schedule = make_schedule(projection, LAYOUT, batch_carried=128)
    saved = plan_checkpoints(booking(), schedule)
    assert saved.size_gb == pytest.approx(14 * TARGET.total_params / 1e9)
    assert saved.every_hours == pytest.approx(1, rel=0.02)
    # Megatron-LM asserts this divisibility.
    assert saved.kept_every_steps % saved.every_steps == 0
    days = booking().compute.hours / 24
    assert saved.kept == pytest.approx(days + 2, abs=1.5)
    assert saved.total_gb == saved.kept * saved.size_gb
