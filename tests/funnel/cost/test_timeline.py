from pathlib import Path

import pytest

from agent.settings.environment import Rates
from autoresearch.errors import CampaignError, SettingsError
from funnel.cost.gpus import GPUS
from funnel.cost.timeline import (
    PUBLISHED_SPEED,
    Phase,
    PhasePlan,
    TrainedModel,
    UnitSpeed,
    fewest_devices,
    measured_speed,
    plan_timeline,
)
from funnel.plan.booking import make_booking
from funnel.plan.layout import Cluster
from funnel.target.architecture import load_target
from tests.support.configs import config
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial, write_journal
from trainer.memory.estimate import parameter_count


def plans(
    model: TrainedModel, phases: list[Phase], units: int = 1, **rates: float
) -> tuple[PhasePlan, ...]:
    """Plan the phases of a run on a billion tokens."""
    speed = UnitSpeed(tokens_per_s=1000, flops_per_token=1e9, source="test")
    asked = {"units": units, "tokens": 1e9, "phases": phases}
    return plan_timeline("toy", model, speed, Rates(**rates), **asked).phases


def test_days_by_hand() -> None:
    target = load_target("llama-7b")
    model = TrainedModel.of(target)
    phases = [Phase(seq_len=8192, share=0.75), Phase(seq_len=32768, share=0.25)]
    short, long = plans(model, phases, units=4, spark_scaling=0.5)
    weights = target.parameter_count.blocks - 65 * 4096 + 128_256 * 4096
    flops = 6 * weights + 6 * 32 * 4096 * 8192
    assert short.flops_per_token == pytest.approx(flops)
    assert short.tokens_per_s == pytest.approx(4 * 0.5 * 1e12 / flops)
    assert short.days == pytest.approx(0.75e9 / short.tokens_per_s / 86400)
    assert long.tokens_per_s < short.tokens_per_s, "attention to a longer context takes longer"


def test_the_launch_plan_counts_the_same_products_and_the_attention_whole() -> None:
    target = load_target("llama-7b")
    cluster = Cluster(nodes=1, gpus=8, gpu=GPUS["h100"])
    compute = make_booking(target, cluster, mfu=0.4, gpu_hourly_usd=2.5).compute
    causal = TrainedModel.of(target).flops_per_token(target.seq_len)
    attention = 6 * 32 * 4096 * 8192
    assert compute.flops_per_token == pytest.approx(causal + attention)


def test_the_published_speed_is_of_the_published_model() -> None:
    # 354.6 M to four digits, less the learned positions and the norms' gains.
    weights = 354.6e6 - (1024 + 49) * 1024
    flops = 6 * weights + 6 * 24 * 1024 * 1024
    assert PUBLISHED_SPEED.flops_per_token == pytest.approx(flops, rel=2e-4)


def test_parallelism_grows_with_the_context_and_shrinks_with_the_memory() -> None:
    model = TrainedModel.of(load_target("llama-1b"))
    phases = [Phase(seq_len=n, share=0.5) for n in (2048, 1 << 17)]

    def needed(gib: float) -> list[str]:
        return [plan.parallelism for plan in plans(model, phases, spark_gib=gib)]

    assert needed(128) == ["data parallel", "sharded, sequence split"]
    assert needed(100_000) == ["data parallel", "data parallel"]
    assert needed(16)[0] != "data parallel"


@pytest.mark.parametrize(
    ("state", "activations", "expected"),
    [(50, 40, (1, 1)), (60, 50, (2, 1)), (10, 150, (2, 2)), (700, 10, (8, 1)), (0, 850, (16, 16))],
)
def test_the_fewest_devices_that_fit(
    state: float, activations: float, expected: tuple[int, int]
) -> None:
    devices, splits = fewest_devices(state, activations, usable_gib=100)
    assert (devices, splits) == expected
    assert state / devices + activations / splits <= 100


@pytest.mark.parametrize(
    "text", ["8192", "8192:0", "x:1", "8192:1.5", "8192:nan", "9" * 400 + ":1"]
)
def test_a_phase_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Phase.parse(text)


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(SettingsError):
        plans(TrainedModel.of(load_target("llama-1b")), [Phase(seq_len=1024, share=0.9)])


def test_a_campaigns_speed_is_the_median_of_its_fastest_config(tmp_path: Path) -> None:
    wide = config(d_model=256)
    trials = tuple(
        trial(n, wide, n, ok(4.2, tokens_per_s=speed))
        for n, speed in ((1, 1e4), (2, 3e4), (3, 2e4))
    )
    rows = [campaign_row(), baseline_row(4, 4.27, 0), iteration_row(1, wide, trials)]
    write_journal(tmp_path / "trajectory.jsonl", iter(rows))
    speed = measured_speed(tmp_path)
    assert speed.tokens_per_s == 2e4
    weights = parameter_count(wide, 257) - (128 + 9) * 256
    assert speed.flops_per_token == 6 * weights + 6 * 4 * 256 * 128
    write_journal(tmp_path / "trajectory.jsonl", iter([campaign_row()]))
    with pytest.raises(CampaignError):
        measured_speed(tmp_path)
