"""Counting the step of spark-354m shows the gain of the kernels over the step without them."""

from __future__ import annotations

from functools import cache

import pytest

from agent.menu.files import load_menu
from autoresearch.errors import SpecError
from bench.reference_accounting import count_reference_step
from tests.support.configs import config
from trainer.accounting.work import StepCounts
from trainer.envelope.counted_step import count_step
from trainer.machine.flops import TrainingFlops, block_weights
from trainer.spec import Config

VOCAB_SIZE = 50257
GIB = 1 << 30


def shape(precision: str = "bf16", **changes: object) -> Config:
    """Return the menu's baseline at 16 × 1024, with these changes."""
    base = load_menu("spark-354m").baseline
    return base.model_copy(update={"batch_size": 16, "precision": precision, **changes})


@cache
def ours(precision: str = "bf16", *, kernels: bool = True) -> StepCounts:
    return count_step(shape(precision), VOCAB_SIZE, kernels=kernels)


@cache
def by_hand() -> StepCounts:
    return count_reference_step(shape(), VOCAB_SIZE)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_every_product_is_aligned_to_16_bytes(precision: str) -> None:
    assert [str(work.shape) for work in ours(precision).misaligned] == []


def test_the_products_of_the_head_were_not_without_padding() -> None:
    """The counter would show it: 50,257 columns make rows of 100,514 bytes."""
    assert {work.kind for work in ours(kernels=False).misaligned} == {"head"}
    assert {work.kind for work in by_hand().misaligned} == {"head"}


def test_the_default_path_moves_at_most_55_gb_a_step() -> None:
    """The traffic between the products: norms, activations, the loss, casts and additions."""
    assert ours().elementwise_bytes <= 55e9
    assert ours(kernels=False).elementwise_bytes == pytest.approx(90.3e9, rel=0.01)
    assert by_hand().elementwise_bytes == pytest.approx(111.7e9, rel=0.01)


def test_its_peak_is_at_most_half_of_the_one_by_hand() -> None:
    assert ours().peak <= 0.5 * by_hand().peak
    assert by_hand().peak / GIB == pytest.approx(27.45, abs=0.02)
    assert ours(kernels=False).peak / GIB == pytest.approx(18.09, abs=0.02)


def test_a_step_launches_about_eight_hundred_kernels() -> None:
    """There are 34 per layer. With kernels of 100 µs and launches of 5 µs the host stays ahead of
    the GPU."""
    assert 600 <= ours().kernels <= 900
    assert ours().kernels < ours(kernels=False).kernels
    assert 1100 <= by_hand().kernels <= 1250


def test_the_flops_are_those_of_the_formula() -> None:
    """The formula counts half of the attention's squares; the backward pass repeats one product."""
    flops = TrainingFlops.of(shape(), vocab_size=VOCAB_SIZE, seq_len=1024)
    tokens = shape().tokens_per_step
    assert ours().flops_of("block") == 6 * 24 * block_weights(shape()) * tokens
    assert ours().flops_of("head") == 6 * 50304 * 1024 * tokens, "of padded rows"
    assert ours().flops_of("attention") == pytest.approx(7 / 6 * flops.attention * tokens / 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"},
        {"tie_embeddings": False, "n_kv_head": 2},
        {"precision": "fp32"},
        {"precision": "fp8"},
        {"batch_size": 1, "seq_len": 7},
    ],
    ids=str,
)
def test_any_config_can_be_counted(changes: dict[str, object]) -> None:
    small = config(n_layer=2, **changes)
    counts = count_step(small, 1000)
    assert counts.flops_of("block") == 12 * block_weights(small) * small.tokens_per_step
    assert counts.peak > counts.held_bytes > 12 * 2 * block_weights(small)


def test_shapes_that_fp8_cannot_have_are_refused() -> None:
    with pytest.raises(SpecError, match="seq_len"):
        count_step(config(precision="fp8", seq_len=7), 1000)
