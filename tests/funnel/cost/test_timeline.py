from pathlib import Path

import pytest

from autoresearch.errors import CampaignError, SettingsError
from funnel.cost.gpus import GPUS
from funnel.cost.speed import PUBLISHED_SPEED, MeasuredSpeed, choose_speed, measured_speed
from funnel.cost.timeline import Phase, Timeline, TrainedModel, fewest_devices, question
from funnel.plan.booking import make_booking
from funnel.plan.layout import Cluster
from funnel.target.architecture import load_target
from tests.support.configs import config
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial, write_journal
from trainer.memory.estimate import parameter_count

SPEED = MeasuredSpeed(tokens_per_s=1000, flops_per_token=1e9, source="test")


def test_days_by_hand() -> None:
    target = load_target("llama-7b")
    model = TrainedModel.of(target)
    phases = [Phase(seq_len=8192, share=0.75), Phase(seq_len=32768, share=0.25)]
    asked = question(tokens=1e9, phases=phases, units=4, efficiency=0.5)
    short, long = Timeline.of("toy", model, SPEED, asked).phases
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
    # 354.6 M, to four digits, less the learned positions and the norms' gains.
    weights = 354.6e6 - (1024 + 49) * 1024
    flops = 6 * weights + 6 * 24 * 1024 * 1024
    assert PUBLISHED_SPEED.flops_per_token == pytest.approx(flops, rel=2e-4)


def test_a_unit_measured_on_the_target_itself_goes_at_its_own_speed() -> None:
    target = load_target("llama-7b")
    model = TrainedModel.of(target)
    speed = choose_speed(model.flops_per_token(target.seq_len), 500, None, None)
    phases = [Phase(seq_len=target.seq_len, share=1)]
    (plan,) = Timeline.of("toy", model, speed, question(tokens=1e9, phases=phases)).phases
    assert plan.tokens_per_s == pytest.approx(500)


def test_parallelism_grows_with_the_context_and_shrinks_with_the_memory() -> None:
    model = TrainedModel.of(load_target("llama-1b"))
    phases = [Phase(seq_len=n, share=0.5) for n in (2048, 1 << 17)]

    def plans(device_gib: float) -> list[str]:
        asked = question(tokens=1e9, phases=phases, device_gib=device_gib)
        return [plan.parallelism for plan in Timeline.of("toy", model, SPEED, asked).phases]

    assert plans(128) == ["data parallel", "sharded, sequence split"]
    assert plans(100_000) == ["data parallel", "data parallel"]
    assert plans(16)[0] != "data parallel"


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


def test_other_parameters_keep_depth_to_width() -> None:
    model = TrainedModel.of(load_target("llama-7b"))
    smaller = model.scaled(model.params / 8)
    # Half as deep and half as wide.
    products, attention = model.product_flops_per_token, model.attention_flops_per_token
    assert smaller.product_flops_per_token == pytest.approx(products / 8)
    assert smaller.attention_flops_per_token == pytest.approx(attention / 4)
    assert smaller.state_bytes == pytest.approx(model.state_bytes / 8)
    assert model.state_bytes == pytest.approx(16 * model.params, rel=1e-3)


@pytest.mark.parametrize(
    "text", ["8192", "8192:0", "x:1", "8192:1.5", "0:1", "8192:nan", "1:2:3", "9" * 400 + ":1"]
)
def test_a_phase_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Phase.parse(text)


@pytest.mark.parametrize(
    "values",
    [{"tokens": -1}, {"units": 0}, {"efficiency": 0}, {"device_gib": 0}, {"tokens": float("nan")}],
)
def test_nonsense_is_refused_by_name(values: dict[str, float]) -> None:
    good = {"tokens": 1e9, "phases": [Phase(seq_len=1024, share=1)]}
    with pytest.raises(SettingsError, match=next(iter(values))):
        question(**good | values)


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"add up to 0\.9"):
        question(tokens=1e9, phases=[Phase(seq_len=1024, share=0.9)])


def test_two_speeds_or_half_of_one_are_refused() -> None:
    with pytest.raises(SettingsError, match="two speeds"):
        choose_speed(1e9, 500, None, Path("runs"))
    with pytest.raises(SettingsError, match="--measured-params"):
        choose_speed(1e9, None, 1e6, None)
    with pytest.raises(SettingsError, match="--tokens-per-s is -5"):
        choose_speed(1e9, -5, None, None)
    with pytest.raises(SettingsError, match="--tokens-per-s is 1e\\+16"):
        choose_speed(1e9, 1e16, None, None)
    assert choose_speed(1e9, 1e10, None, None).tflops == 1e7
    assert choose_speed(1e9, None, None, None) is PUBLISHED_SPEED


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
    with pytest.raises(CampaignError, match="holds no campaign"):
        measured_speed(tmp_path / "nowhere")
