"""Proxies keep their target's shape, and so does every config of the menu written for them."""

import math
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import parse_menu
from agent.menu.proxy_menu import ProxyMenu
from autoresearch.errors import SpecError, TargetError
from funnel.target.architecture import (
    TargetArchitecture,
    load_target,
    shipped_targets,
)
from funnel.target.menu_text import longest_seq_len, menu_text
from funnel.target.proxies import CPU, GPU, ProxyFamily, Scale, find_proxies
from funnel.target.shape import ParameterCount, Shape


def family_of(
    target: TargetArchitecture,
    scale: Scale = GPU,
    params: int | None = None,
    tokenizer: str | None = None,
) -> ProxyFamily:
    return find_proxies(
        target,
        scale=scale,
        params=params or scale.default_params,
        tokenizer=tokenizer or scale.tokenizer,
        seq_len=longest_seq_len(scale),
    )


def target_like(**changes: object) -> TargetArchitecture:
    """Return llama-7b with these changes, declared with its resulting parameter count."""
    base = load_target("llama-7b").model_dump() | changes
    shape = TargetArchitecture.model_construct(**base)
    return TargetArchitecture.model_validate(
        base | {"params": shape.total_params, "params_counted": "total"}
    )


def menu_of(family: ProxyFamily) -> ProxyMenu:
    return parse_menu(menu_text(family), "generated")


def test_the_proxies_of_the_7b_target() -> None:
    family = family_of(load_target("llama-7b"))
    assert [(p.d_model, p.n_layer, p.n_head, p.kv_heads, p.d_ff) for p in family.proxies] == [
        (512, 4, 4, 1, 1792),
        (1024, 8, 8, 2, 3584),
    ]
    # By hand, at d_model 1024: a block has 1024 × (2 × 1024 + 2 × 256) for attention,
    # 3 × 1024 × 3584 for SwiGLU and 2 × 1024 of gains; then a gain and two tables.
    block = 1024 * (2 * 1024 + 2 * 256) + 3 * 1024 * 3584 + 2 * 1024
    assert family.params(family.default) == 8 * block + 1024 + 2 * 50257 * 1024
    assert family.default.d_model == 1024
    assert family.given_up() == ()


@pytest.mark.parametrize("name", shipped_targets())
@pytest.mark.parametrize("scale", [GPU, CPU])
def test_every_config_of_a_menu_has_the_targets_shape_and_a_size_within(
    name: str, scale: Scale
) -> None:
    target = load_target(name)
    family = family_of(target, scale)
    menu = menu_of(family)
    wanted = Shape.of(target)
    rng = Random(0)
    given_up = [clause.split()[0] for clause in family.given_up()]
    assert given_up == (["head_dim"] if scale is CPU else [])
    seen = set()
    for _ in range(200):
        changes = {name: domain.draw(rng) for name, domain in menu.domains.items()}
        config = menu.apply(menu.baseline, changes)
        seen.add(config.d_model)
        departures = list(Shape.of(config).departures(wanted))
        assert departures == list(family.given_up())
        params = ParameterCount.of(config, family.vocab_size).total
        assert scale.low_params <= params <= scale.high_params
    assert seen == {proxy.d_model for proxy in family.proxies}


def test_multi_head_attention_stays_multi_head() -> None:
    family = family_of(target_like(n_kv_head=32))
    menu = menu_of(family)
    assert ("n_kv_head" in menu.tied, menu.baseline.n_kv_head) == (False, None)
    assert [p.d_model for p in family.proxies][:2] == [512, 640]


def test_a_depth_that_must_be_rounded_stays_within_a_tenth() -> None:
    target = target_like(n_layer=30)
    family = family_of(target)
    menu = menu_of(family)
    for proxy in family.proxies:
        config = menu.apply(menu.baseline, {"d_model": proxy.d_model})
        assert config.n_layer == proxy.n_layer
        exact = Fraction(30, 4096) * proxy.d_model
        assert config.n_layer == math.floor(exact + Fraction(1, 2))
        assert abs(config.n_layer / exact - 1) <= 0.1


def test_one_width_makes_a_menu_without_a_width_knob() -> None:
    menu = menu_of(family_of(load_target("llama-70b")))
    base = menu.baseline
    assert ("d_model" in menu.knobs, menu.tied) == (False, {})
    assert (base.d_model, base.n_layer, base.n_head, base.kv_heads) == (1024, 10, 8, 1)


def test_neither_tokens_nor_width_buy_a_better_score() -> None:
    menu = menu_of(family_of(load_target("llama-1b")))
    budget = menu.campaign.budget
    wide = menu.apply(menu.baseline, {"d_model": 1536})
    assert "d_model ** 3" in (menu.why_broken(wide, budget) or "")
    thrifty = menu.apply(menu.baseline, {"d_model": 1536, "batch_size": 4})
    assert menu.why_broken(thrifty, budget) is None
    narrow = menu.apply(menu.baseline, {"d_model": 768, "seq_len": 2048})
    assert "batch_size * seq_len <= 16384" in (menu.why_broken(narrow, budget) or "")


LARGE = {"n_layer": 80, "n_head": 64, "d_model": 8192}
SMALL = {"n_layer": 2, "n_head": 4, "n_kv_head": 1, "head_dim": 64, "d_model": 256}


@pytest.mark.parametrize(
    ("changes", "scale", "params", "clause"),
    [
        ({"n_kv_head": 1}, GPU, None, "head_dim 128 and 32 heads to a KV head"),
        ({"ffn_ratio": 1793 / 512}, CPU, None, "d_ff / d_model = 1793/512"),
        ({"n_layer": 1}, GPU, None, "d_model 3072, would need 0.75 layers"),
        (LARGE, GPU, 60_000_000, "ask for --params 237M"),
        ({}, GPU, 49_000_000, "outside the 50M to 500M"),
        ({}, GPU, 501_000_000, "outside the 50M to 500M"),
        (SMALL | {"vocab_size": 1000}, GPU, None, "no proxy of 50M to 500M parameters"),
    ],
)
def test_the_ratio_that_prevents_a_proxy_is_named(
    changes: dict[str, Any], scale: Scale, params: int | None, clause: str
) -> None:
    with pytest.raises(TargetError) as caught:
        family_of(target_like(**changes), scale, params)
    assert clause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_on_a_cpu_the_size_is_a_wish() -> None:
    family = family_of(load_target("llama-7b"), CPU, params=200_000_000)
    assert family.proxies == family_of(load_target("llama-7b"), CPU).proxies
    assert family.default == family.proxies[-1]


@given(
    n_layer=st.integers(1, 90),
    heads=st.sampled_from([(16, 1), (16, 4), (24, 8), (32, 8), (40, 8), (64, 8), (32, 32)]),
    head_dim=st.sampled_from([64, 80, 96, 128]),
    ffn_eighths=st.integers(8, 40),
    scale=st.sampled_from([GPU, CPU]),
    params=st.integers(50_000_000, 500_000_000),
)
def test_a_family_keeps_the_shape_or_says_why_not(
    n_layer: int,
    heads: tuple[int, int],
    head_dim: int,
    ffn_eighths: int,
    scale: Scale,
    params: int,
) -> None:
    target = target_like(
        n_layer=n_layer,
        n_head=heads[0],
        n_kv_head=heads[1],
        head_dim=head_dim,
        d_model=heads[0] * head_dim,
        ffn_ratio=ffn_eighths / 8,
    )
    try:
        family = family_of(target, scale, params, "bytes")
    except TargetError:
        return
    menu = menu_of(family)
    for proxy in family.proxies:
        try:
            width = {"d_model": proxy.d_model} if "d_model" in menu.knobs else {}
            config = menu.apply(menu.baseline, width)
        except SpecError as error:
            pytest.fail(f"{proxy} is not trainable: {error}")
        departures = list(Shape.of(config).departures(Shape.of(target)))
        assert departures == list(family.given_up())
        assert scale is CPU or not departures
        assert scale.low_params <= family.params(proxy) <= scale.high_params
