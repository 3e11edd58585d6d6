"""A shape at another size has the requested number of parameters and keeps the ratios."""

from __future__ import annotations

import pytest

from autoresearch.errors import TargetError
from funnel.ladder.shapes import EVEN, SIZE_TOLERANCE, departure, own_params, scaled
from tests.support.configs import config
from trainer.spec import Config, make_config

SHAPES = {
    "gelu": config(),
    "swiglu": config(activation="swiglu", d_ff=384),
    "grouped": config(n_head=8, n_kv_head=2),
    "deep": config(n_layer=12, d_model=96, n_head=4, d_ff=384),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("params", [40_000, 400_000, 5_000_000])
def test_the_parameters_are_those_asked_for_and_the_config_is_whole(
    shape: Config, params: int
) -> None:
    found = scaled(shape, params)
    assert abs(own_params(found) / params - 1) < SIZE_TOLERANCE
    make_config(found.canonical())
    kept = {"lr", "batch_size", "seq_len", "activation", "norm", "positions", "tie_embeddings"}
    assert all(getattr(found, name) == getattr(shape, name) for name in kept)


def test_two_recipes_of_a_size_are_even() -> None:
    for params in (90_000, 700_000, 5_000_000):
        first = own_params(scaled(SHAPES["swiglu"], params))
        second = own_params(scaled(SHAPES["gelu"], first))
        assert abs(second / first - 1) < EVEN


def test_its_own_size_is_itself_and_one_below_any_shape_is_refused() -> None:
    assert scaled(config(), own_params(config())) == config()
    with pytest.raises(TargetError):
        scaled(config(), 500)


def test_the_larger_the_nearer_to_its_ratios() -> None:
    off = [departure(scaled(config(), 10**n), config()) for n in (7, 8, 9)]
    assert max(off) < 0.02
    large = scaled(config(), 10**9)
    assert large.d_model / large.n_head == 32
    assert large.d_model / large.n_layer == pytest.approx(32, rel=0.1)
    assert large.d_ff / large.d_model == pytest.approx(4, rel=0.1)
    grouped = scaled(SHAPES["grouped"], 50_000_000)
    assert grouped.n_head == 4 * grouped.kv_heads
