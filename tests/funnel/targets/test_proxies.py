"""A proxy keeps its target's shape, or the refusal says what prevents one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import TargetError
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.targets.proxies import CPU, GPU, ProxyBase, Scale, find_proxy
from funnel.targets.shape import ParameterCount, Shape


def proxy_of(
    target: TargetArchitecture,
    scale: Scale = GPU,
    params: int | None = None,
    tokenizer: str | None = None,
) -> ProxyBase:
    return find_proxy(
        target,
        scale=scale,
        params=params or scale.default_params,
        tokenizer=tokenizer or scale.tokenizer,
    )


def target_like(**changes: object) -> TargetArchitecture:
    """Return llama-7b with these changes, declared with its resulting parameter count."""
    base = load_target("llama-7b").model_dump() | changes
    shape = TargetArchitecture.model_construct(**base)
    return TargetArchitecture.model_validate(
        base | {"params": shape.total_params, "params_counted": "total"}
    )


def test_the_proxy_of_the_7b_target() -> None:
    found = proxy_of(load_target("llama-7b"))
    p = found.proxy
    assert (p.d_model, p.n_layer, p.n_head, p.kv_heads, p.d_ff) == (1024, 8, 8, 2, 3584)
    # By hand: a block has 1024 × (2 × 1024 + 2 × 256) for attention, 3 × 1024 × 3584 for SwiGLU
    # and 2 × 1024 of gains; then a gain and two tables.
    block = 1024 * (2 * 1024 + 2 * 256) + 3 * 1024 * 3584 + 2 * 1024
    params = ParameterCount.of(p, found.vocab_size).total
    assert params == 8 * block + 1024 + 2 * 50257 * 1024
    assert found.given_up() == ()


LARGE = {"n_layer": 80, "n_head": 64, "d_model": 8192}
SMALL = {"n_layer": 2, "n_head": 4, "n_kv_head": 1, "head_dim": 64, "d_model": 256}


@pytest.mark.parametrize(
    ("changes", "scale", "params", "clause"),
    [
        ({"n_kv_head": 1}, GPU, None, "head_dim 128 and 32 heads to a KV head"),
        ({"ffn_ratio": 1793 / 512}, CPU, None, "d_ff / d_model = 1793/512"),
        ({"n_layer": 1}, GPU, None, "n_layer 1 for d_model 4096"),
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
        proxy_of(target_like(**changes), scale, params)
    assert clause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_on_a_cpu_the_size_is_a_wish_and_heads_are_narrower() -> None:
    found = proxy_of(load_target("llama-7b"), CPU, params=200_000_000)
    assert (found.proxy.d_model, found.shape.head_dim) == (256, 32)
    assert ParameterCount.of(found.proxy, found.vocab_size).total == 2_229_504
    assert found.given_up() == ("head_dim is 32, the target's 128",)


@given(
    n_layer=st.integers(1, 90),
    heads=st.sampled_from([(16, 1), (16, 4), (24, 8), (32, 8), (40, 8), (64, 8), (32, 32)]),
    head_dim=st.sampled_from([64, 80, 96, 128]),
    ffn_eighths=st.integers(8, 40),
    scale=st.sampled_from([GPU, CPU]),
    params=st.integers(50_000_000, 500_000_000),
)
def test_a_proxy_keeps_the_shape_or_there_is_none(
    n_layer: int, heads: tuple[int, int], head_dim: int, ffn_eighths: int, scale: Scale, params: int
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
        found = proxy_of(target, scale, params, "bytes")
    except TargetError:
        return
    departures = tuple(Shape.of(found.proxy).departures(Shape.of(target)))
    assert departures == found.given_up()
    assert scale is CPU or not departures
    params = ParameterCount.of(found.proxy, found.vocab_size).total
    assert scale.low_params <= params <= scale.high_params
