"""Counting the step of spark-354m shows the gain of the kernels over the step without them."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("counts", "moved_gb", "peak_gib"),
    [
        (lambda: ours(kernels=False), 90.3, 18.09),
        (lambda: count_reference_step(shape(), VOCAB_SIZE), 111.7, 27.45),
    ],
    ids=["without kernels", "by hand"],
)
def test_without_our_kernels_a_step_moves_and_holds_more_and_its_head_is_not_aligned(
    counts: Callable[[], StepCounts], moved_gb: float, peak_gib: float
) -> None:
    """50,257 columns make rows of 100,514 bytes. ``test_fused`` has the step with kernels."""
    found = counts()
    assert found.elementwise_bytes == pytest.approx(moved_gb * 1e9, rel=0.01)
    assert found.peak / GIB == pytest.approx(peak_gib, abs=0.02)
    assert {work.kind for work in found.misaligned} == {"head"}
    assert found.kernels > ours().kernels


def test_every_product_in_fp8_is_aligned_to_16_bytes() -> None:
    assert ours("fp8").misaligned == {}


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
