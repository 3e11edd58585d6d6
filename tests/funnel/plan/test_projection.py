"""Exact examples of carrying a recipe to a target, and laws that hold at any width."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import TargetError
from funnel.plan.projection import Projection, project
from funnel.target.architecture import TargetArchitecture, load_target
from tests.support.configs import config
from trainer.spec import Config

TARGET = load_target("llama-7b")
PROXY = config(
    n_layer=8,
    n_head=8,
    n_kv_head=2,
    d_model=1024,
    d_ff=3584,
    activation="swiglu",
    norm="rmsnorm",
    positions="rotary",
    tie_embeddings=False,
    lr=3e-4,
    lr_warmup=5,
    batch_size=16,
    seq_len=1024,
)


def rule(projection: Projection, name: str) -> str:
    (value,) = [each for each in projection.carried if each.name == name]
    return value.rule


def test_a_proxy_a_quarter_as_wide() -> None:
    """The factors by hand: a quarter for width, a half for depth, (161 B / 16 M)^-0.3 for length
    and sqrt(1.45 M / 16,384) for the batch."""
    projection = project(PROXY, TARGET, horizon_steps=1000)

    everywhere = (160_605_224_960 / 16_384_000) ** -0.3 * (177 / 2) ** 0.5
    assert projection.config.lr == pytest.approx(3e-4 / 4 / 2 * everywhere)
    assert projection.base_lr == pytest.approx(4 * projection.config.lr)
    assert projection.base_width == 1024
    shortcut = project(PROXY, TARGET, horizon_steps=1000, lr_rule="sqrt_width")
    assert shortcut.config.lr == pytest.approx(3e-4 / 2 / 2 * everywhere)
    assert shortcut.base_lr == shortcut.config.lr
    # 160,605,224,960 tokens are 20 per parameter; 0.58 times their power of 0.571 is 1.45 million.
    assert (projection.config.batch_size, projection.tokens_per_step) == (177, 1_449_984)
    assert projection.steps == math.ceil(160_605_224_960 / 1_449_984) == 110_764
    assert projection.warmup_fraction == 0.005
    assert projection.config.lr_warmup == 554
    assert projection.departures == ()


def test_the_shape_is_the_targets() -> None:
    projected = project(PROXY, TARGET, horizon_steps=1000).config

    assert (projected.d_model, projected.n_layer, projected.d_ff) == (4096, 32, 14336)
    assert (projected.n_head, projected.n_kv_head, projected.seq_len) == (32, 8, 8192)
    unchanged = ("lr_min_ratio", "grad_clip", "beta1", "beta2", "precision")
    assert [getattr(projected, name) for name in unchanged] == [
        getattr(PROXY, name) for name in unchanged
    ]


def test_every_value_says_what_carried_it() -> None:
    projection = project(PROXY, TARGET, horizon_steps=1000)

    carriable = [name for name in Config.model_fields if not name.startswith("code.")]
    assert [each.name for each in projection.carried] == carriable
    for each in projection.carried:
        field = "kv_heads" if each.name == "n_kv_head" else each.name
        target, source = getattr(projection.config, field), getattr(PROXY, field)
        assert each.target == ("none" if target is None else target)
        assert each.proxy == ("none" if source is None else source)
        assert each.rule
    said = rule(projection, "lr")
    assert "width 0.25 (mup: 1024 to 4096)" in said
    assert "multiplied by 1024 / 4096" in said
    assert "0.500% of the schedule" in rule(projection, "lr_warmup")
    assert "B = 0.58 D^0.571 tokens (Li et al. 2025" in rule(projection, "batch_size")
    (width,) = [each for each in projection.disagreements if each.what == "lr, by width"]
    assert width.values["sqrt_width"] == pytest.approx(2 * width.values["mup"])


def test_another_batch_carries_another_rate() -> None:
    """Sixteen times the tokens per step gives four times the rate and a sixteenth of the steps."""
    one = project(PROXY, TARGET, horizon_steps=1000, batch_size=8)
    other = project(PROXY, TARGET, horizon_steps=1000, batch_size=128)

    assert other.config.lr == pytest.approx(4 * one.config.lr)
    assert other.base_lr == pytest.approx(4 * one.base_lr)
    assert other.steps == pytest.approx(one.steps / 16, rel=1e-5)
    assert other.config.weight_decay == pytest.approx(4 * one.config.weight_decay, rel=1e-5)
    assert rule(other, "batch_size") == (
        "1,048,576 tokens a step in sequences of 8,192, as given; the rates and the steps follow"
    )


def test_a_slowed_run_has_every_rate_lower_and_its_own_decay() -> None:
    run = project(PROXY, TARGET, horizon_steps=1000)
    slowed = run.slowed(0.5)

    assert slowed.config.lr == run.config.lr / 2
    assert slowed.base_lr == run.base_lr / 2
    assert slowed.source.lr == PROXY.lr / 2
    assert rule(slowed, "lr").startswith("0.5 × the winner's: ")
    assert slowed.config.model_copy(update={"lr": run.config.lr}) == run.config


def test_a_proxy_of_another_shape_is_carried_and_named() -> None:
    departures = project(config(), TARGET, horizon_steps=1000).departures

    assert "head_dim is 32, the target's 128" in departures
    assert "activation is gelu, the target's swiglu" in departures
    assert "n_layer / d_model is 1 / 32, the target's 1 / 128 (+300%)" in departures


def test_multi_head_attention_is_said_by_leaving_the_kv_heads_out() -> None:
    full = TargetArchitecture.model_validate(
        TARGET.model_dump() | {"n_kv_head": 32, "params": 7_800_000_000}
    )

    assert project(PROXY, full, horizon_steps=1000).config.n_kv_head is None


@pytest.mark.parametrize("horizon", [1, 5])
def test_a_warmup_that_fills_the_schedule_is_refused(horizon: int) -> None:
    with pytest.raises(TargetError, match=f"warm-up of 5 steps in a schedule of {horizon} "):
        project(PROXY, TARGET, horizon_steps=horizon)


def test_it_survives_json() -> None:
    projection = project(PROXY, TARGET, horizon_steps=1000)

    assert Projection.model_validate_json(projection.model_dump_json()) == projection


# --- laws ---------------------------------------------------------------------------------------

WIDTHS = st.integers(1, 64).map(lambda units: 128 * units)
RATES = st.floats(1e-6, 1e-1)


def of_width(d_model: int) -> TargetArchitecture:
    base = TARGET.model_dump() | {
        "d_model": d_model,
        "n_head": d_model // 128,
        "n_kv_head": 1,
        "params_counted": "total",
    }
    shape = TargetArchitecture.model_construct(**base)
    return TargetArchitecture.model_validate(base | {"params": shape.total_params})


def proxy(d_model: int, lr: float) -> Config:
    return config(d_model=d_model, n_head=d_model // 128, lr=lr, batch_size=64)


@given(width=WIDTHS, wider=WIDTHS, lr=RATES)
def test_mup_is_the_square_of_sqrt_width(width: int, wider: int, lr: float) -> None:
    here, there = (
        project(proxy(width, lr), of_width(wider), horizon_steps=1000, lr_rule=rule).config.lr
        for rule in ("mup", "sqrt_width")
    )
    assert here / there == pytest.approx((width / wider) ** 0.5)


@given(
    batch_size=st.one_of(st.none(), st.integers(1, 4096)),
    warmup=st.integers(0, 900),
    horizon=st.integers(901, 100_000),
    budget=st.integers(10**8, 10**13),
)
def test_tokens_and_fractions_are_kept(
    batch_size: int | None, warmup: int, horizon: int, budget: int
) -> None:
    source = PROXY.model_copy(update={"lr_warmup": warmup})
    target = TARGET.model_copy(update={"token_budget": budget})
    projection = project(source, target, horizon_steps=horizon, batch_size=batch_size)

    assert projection.tokens_per_step == projection.config.tokens_per_step
    if batch_size:
        assert projection.config.batch_size == batch_size
    assert (projection.steps - 1) * projection.tokens_per_step < budget
    assert budget <= projection.steps * projection.tokens_per_step
    fraction = projection.config.lr_warmup / projection.steps
    assert fraction == pytest.approx(warmup / horizon, abs=1 / projection.steps)
