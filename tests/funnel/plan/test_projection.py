"""Carrying a recipe: exact examples, and the laws that any width must obey."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import TargetError
from funnel.plan.projection import LrRule, Projection, project
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
    projection = project(PROXY, TARGET, horizon_steps=1000)

    assert projection.lr_by_rule == {"mup": 7.5e-5, "sqrt_width": 1.5e-4}
    assert (projection.config.lr, projection.base_lr) == (7.5e-5, 3e-4)
    shortcut = project(PROXY, TARGET, horizon_steps=1000, lr_rule="sqrt_width")
    assert (shortcut.config.lr, shortcut.base_lr) == (1.5e-4, 1.5e-4)
    # 16 × 1,024 tokens are two sequences of 8,192; 160,605,224,960 tokens are 20 a parameter.
    assert (projection.config.batch_size, projection.tokens_per_step) == (2, 16384)
    assert projection.steps == math.ceil(160_605_224_960 / 16384) == 9_802_565
    assert projection.warmup_fraction == 0.005
    assert projection.config.lr_warmup == 49_013
    assert projection.departures == ()


def test_the_shape_is_the_targets() -> None:
    projected = project(PROXY, TARGET, horizon_steps=1000).config

    assert (projected.d_model, projected.n_layer, projected.d_ff) == (4096, 32, 14336)
    assert (projected.n_head, projected.n_kv_head, projected.seq_len) == (32, 8, 8192)
    unchanged = ("lr_min_ratio", "grad_clip", "weight_decay", "beta1", "beta2", "precision")
    assert [getattr(projected, name) for name in unchanged] == [
        getattr(PROXY, name) for name in unchanged
    ]


def test_every_value_says_what_carried_it() -> None:
    projection = project(PROXY, TARGET, horizon_steps=1000)

    assert [each.name for each in projection.carried] == list(Config.model_fields)
    for each in projection.carried:
        field = "kv_heads" if each.name == "n_kv_head" else each.name
        target = getattr(projection.config, field)
        assert each.target == ("none" if target is None else target)
        proxy = getattr(PROXY, field)
        assert each.proxy == ("none" if proxy is None else proxy)
        assert each.rule
    said = rule(projection, "lr")
    assert "lr × 1024 / 4096 for the matrices in the blocks" in said
    assert "embedding, head and norms keep 0.0003" in said
    assert "sqrt_width says 0.00015" in rule(projection, "lr")
    assert "0.500% of the schedule" in rule(projection, "lr_warmup")
    assert rule(projection, "batch_size") == (
        "tokens a step as they are: 16,384 in sequences of 8,192"
    )


def test_a_batch_below_one_sequence_becomes_one_and_says_so() -> None:
    projection = project(PROXY.model_copy(update={"batch_size": 1}), TARGET, horizon_steps=1000)

    assert (projection.config.batch_size, projection.tokens_per_step) == (1, 8192)
    assert rule(projection, "batch_size").endswith("1,024, to whole sequences of 8,192: 8,192")


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

RULES = st.sampled_from(["mup", "sqrt_width"])
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


@given(rule=RULES, width=WIDTHS, lr=RATES)
def test_a_target_as_wide_as_the_proxy_has_its_rate(rule: LrRule, width: int, lr: float) -> None:
    assert (
        project(proxy(width, lr), of_width(width), horizon_steps=1000, lr_rule=rule).config.lr == lr
    )


@given(rule=RULES, widths=st.tuples(WIDTHS, WIDTHS, WIDTHS), lr=RATES)
def test_two_steps_are_one(rule: LrRule, widths: tuple[int, int, int], lr: float) -> None:
    first, middle, last = widths

    def carried(lr: float, start: int, end: int) -> float:
        return project(proxy(start, lr), of_width(end), horizon_steps=1000, lr_rule=rule).config.lr

    at_middle = carried(lr, first, middle)
    assert carried(at_middle, middle, last) == pytest.approx(carried(lr, first, last), rel=1e-9)


@given(width=WIDTHS, wider=WIDTHS, lr=RATES)
def test_mup_is_the_square_of_sqrt_width(width: int, wider: int, lr: float) -> None:
    rates = project(proxy(width, lr), of_width(wider), horizon_steps=1000).lr_by_rule

    assert rates["mup"] / lr == pytest.approx((rates["sqrt_width"] / lr) ** 2)
    assert rates["mup"] == pytest.approx(lr * width / wider)


@given(
    batch_size=st.integers(1, 4096),
    warmup=st.integers(0, 900),
    horizon=st.integers(901, 100_000),
    budget=st.integers(10**6, 10**13),
)
def test_tokens_and_fractions_are_kept(
    batch_size: int, warmup: int, horizon: int, budget: int
) -> None:
    source = PROXY.model_copy(update={"batch_size": batch_size, "lr_warmup": warmup})
    target = TARGET.model_copy(update={"token_budget": budget})
    projection = project(source, target, horizon_steps=horizon)

    assert projection.tokens_per_step == projection.config.tokens_per_step
    off = abs(projection.tokens_per_step - source.tokens_per_step)
    assert off <= target.seq_len / 2 or projection.config.batch_size == 1
    assert (projection.steps - 1) * projection.tokens_per_step < budget
    assert budget <= projection.steps * projection.tokens_per_step
    fraction = projection.config.lr_warmup / projection.steps
    assert fraction == pytest.approx(warmup / horizon, abs=0.5 / projection.steps)
