from __future__ import annotations

import pytest

from funnel.cost.gpus import GPUS
from funnel.plan.booking import Booking, make_booking, make_schedule, plan_checkpoints
from funnel.plan.layout import Cluster, Layout
from funnel.plan.projection import project
from funnel.target.architecture import load_target
from tests.support.configs import config

TARGET = load_target("llama-7b")
LAYOUT = Layout(tensor=2, pipeline=1, data=4, micro_batch=1, global_batch=128)


def booking(mfu: float = 0.4) -> Booking:
    cluster = Cluster(nodes=1, gpus=8, gpu=GPUS["h100"])
    return make_booking(TARGET, cluster, mfu=mfu, gpu_hourly_usd=2.5)


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
    brief = make_booking(short, booking().cluster, mfu=0.4, gpu_hourly_usd=2.5)
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
