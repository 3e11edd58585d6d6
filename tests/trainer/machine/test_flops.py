"""A step's arithmetic agrees with counts by hand and with torch's counter."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.reference_gpt import ReferenceGPT
from tests.support.configs import config
from tests.support.envelopes import GB10_VOCAB, gb10_base
from trainer.machine.flops import TrainingFlops, product_weights
from trainer.memory.estimate import parameter_count


def test_the_published_shape_by_hand() -> None:
    """24 blocks of 4 D² + 2 D F, and the head; positions and gains are not products."""
    base = gb10_base()
    weights = product_weights(base, GB10_VOCAB)
    assert weights == 24 * (4 * 1024**2 + 2 * 1024 * 4096) + GB10_VOCAB * 1024
    no_product = (1024 + 2 * 24 + 1) * 1024  # positions and gains
    assert weights == parameter_count(base, GB10_VOCAB) - no_product
    flops = TrainingFlops.of(base, vocab_size=GB10_VOCAB, seq_len=1024)
    assert flops.per_token == 6 * weights + 12 * 24 * 1024 * 1024
    assert flops.per_token - flops.causal_per_token == 6 * 24 * 1024 * 1024


def test_tying_the_head_saves_no_arithmetic() -> None:
    tied, untied = (config(tie_embeddings=tied) for tied in (True, False))
    assert product_weights(tied, 300) == product_weights(untied, 300)


def test_shared_heads_of_keys_and_a_third_matrix_count() -> None:
    shared = config(n_layer=1, n_head=4, n_kv_head=1, d_model=64, d_ff=128, activation="swiglu")
    # Queries and output 2 D², keys and values 2 × D × D / 4, three matrices of D × F, the head.
    assert product_weights(shared, 10) == 2 * 64**2 + 2 * 64 * 16 + 3 * 64 * 128 + 10 * 64
    # Two elevenths of D² are no exact float.
    shared = config(n_layer=1, n_head=11, n_kv_head=1, d_model=880, d_ff=128)
    assert product_weights(shared, 1) == 2 * 880**2 + 2 * 880 * 80 + 2 * 880 * 128 + 880


def test_a_gate_is_a_third_matrix_whatever_it_gates_with_and_norms_are_no_product() -> None:
    one, other = (product_weights(config(activation=name), 10) for name in ("gelu", "relu2"))
    assert one == other
    gated = [product_weights(config(activation=name), 10) for name in ("swiglu", "geglu")]
    assert gated == [one + 4 * 128 * 512] * 2
    assert product_weights(config(qk_norm=True, norm_place="sandwich"), 10) == one


def test_torch_counts_the_same() -> None:
    """Torch's counter sees every product, forward and backward. Its attention counts whole
    squares."""
    shape = config(n_layer=2, n_head=2, d_model=32, d_ff=64, seq_len=16, precision="fp32")
    vocab, batch = 50, 3
    model = ReferenceGPT(shape, vocab)
    tokens_BT = torch.zeros(batch, 16, dtype=torch.int64)
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model(tokens_BT, tokens_BT).backward()
    flops = TrainingFlops.of(shape, vocab_size=vocab, seq_len=16)
    assert counter.get_total_flops() == pytest.approx(flops.per_token * batch * 16, rel=0.02)
