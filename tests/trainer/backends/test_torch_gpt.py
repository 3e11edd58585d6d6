"""The reference model's initialization, causality and architecture options."""

from __future__ import annotations

import argparse
import inspect
import math

import pytest
import torch
from torch.nn import functional

from autoresearch.errors import SpecError
from tests.support.configs import PAIRWISE, config
from trainer.backends import choose_backend
from trainer.backends.blocks import SHORT_SEQUENCE, Norm, Rotary, attend
from trainer.backends.torch_gpt import TorchGPT

CPU = torch.device("cpu")


def build(vocab_size: int = 257, **changes: object) -> TorchGPT:
    """Return a model of a small config with these changes."""
    torch.manual_seed(0)
    small = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64, "seq_len": 16}
    model = choose_backend("torch").build(config(**{**small, **changes}), vocab_size, CPU)
    assert isinstance(model, TorchGPT)
    return model


@pytest.mark.parametrize(("d_model", "vocab_size"), [(64, 257), (512, 1024)])
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), PAIRWISE)
def test_first_loss_is_near_that_of_knowing_nothing(
    activation: str, norm: str, positions: str, tied: bool, d_model: int, vocab_size: int
) -> None:
    model = build(
        vocab_size,
        d_model=d_model,
        d_ff=4 * d_model,
        n_head=4,
        activation=activation,
        norm=norm,
        positions=positions,
        tie_embeddings=tied,
        precision="fp32",
        seq_len=64,
    )
    stream_T = torch.randint(vocab_size, (4, 65))
    with torch.no_grad():
        loss = model(stream_T[:, :-1], stream_T[:, 1:]).item()
    assert loss == pytest.approx(math.log(vocab_size), rel=0.05)


@pytest.mark.parametrize("d_model", [64, 512])
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), PAIRWISE)
def test_first_loss_is_near_that_on_text_that_repeats_itself_too(
    activation: str, norm: str, positions: str, tied: bool, d_model: int
) -> None:
    """Source code is full of runs of spaces, which an untrained tied head predicts correctly."""
    model = build(
        d_model=d_model,
        d_ff=2 * d_model,
        n_head=4,
        activation=activation,
        norm=norm,
        positions=positions,
        tie_embeddings=tied,
        precision="fp32",
        seq_len=128,
    )
    source = inspect.getsource(argparse).encode()[: 16 * 129]
    text_BT = torch.tensor(list(source)).view(16, 129)
    with torch.no_grad():
        loss = model(text_BT[:, :-1], text_BT[:, 1:]).item()
    assert loss == pytest.approx(math.log(257), rel=0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), PAIRWISE)
def test_a_token_sees_only_what_comes_before_it(
    activation: str, norm: str, positions: str, tied: bool, precision: str
) -> None:
    model = build(
        activation=activation,
        norm=norm,
        positions=positions,
        tie_embeddings=tied,
        precision=precision,
    )
    tokens_BT = torch.randint(257, (2, 16))
    other_BT = tokens_BT.clone()
    other_BT[:, 9] = (other_BT[:, 9] + 1) % 257
    with torch.no_grad():
        before, after = model.logits(tokens_BT), model.logits(other_BT)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.equal(before[:, 9:], after[:, 9:])


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_order_matters(positions: str) -> None:
    model = build(positions=positions, precision="fp32")
    with torch.no_grad():  # at the start attention is almost a mean, and order almost invisible
        for block in model.blocks:
            block.get_parameter("qkv_RD").mul_(30)
    forward = model.logits(torch.tensor([[5, 9, 11, 40]]))
    swapped = model.logits(torch.tensor([[9, 5, 11, 40]]))
    assert (forward[0, -1] - swapped[0, -1]).abs().max() > 1e-4


def test_tied_models_share_their_table_and_untied_ones_do_not() -> None:
    tied, untied = build(tie_embeddings=True), build(tie_embeddings=False)
    assert tied.head_VD is tied.embedding_VD
    assert untied.head_VD is not untied.embedding_VD
    count = [sum(p.numel() for p in m.parameters()) for m in (tied, untied)]
    assert count[1] - count[0] == 257 * 32


def test_parameters_are_the_matrices_of_the_recipe() -> None:
    width, hidden, layers = 32, 64, 2
    model = build(activation="swiglu", tie_embeddings=False, positions="learned")
    block = 3 * width * width + width * width + 3 * width * hidden + 2 * width
    expected = 257 * width * 2 + 16 * width + layers * block + width
    assert sum(p.numel() for p in model.parameters()) == expected
    assert not any("bias" in name for name, _ in model.named_parameters())


def test_every_parameter_is_fp32_and_gets_a_gradient() -> None:
    for activation, norm, positions, tied in PAIRWISE:
        model = build(activation=activation, norm=norm, positions=positions, tie_embeddings=tied)
        tokens_BT = torch.randint(257, (2, 16))
        model(tokens_BT, tokens_BT).backward()
        for name, parameter in model.named_parameters():
            assert parameter.dtype is torch.float32, name
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_likelihoods_are_those_of_the_logits() -> None:
    model = build(precision="fp32")
    stream_BT = torch.randint(257, (3, 12))
    loss = model(stream_BT[:, :-1], stream_BT[:, 1:])
    model.eval()
    exact_BT = model(stream_BT[:, :-1], stream_BT[:, 1:])
    log_p = model.logits(stream_BT[:, :-1]).double().log_softmax(-1)
    expected = -log_p.gather(-1, stream_BT[:, 1:, None]).squeeze(-1)
    assert (loss.dtype, loss.shape) == (torch.float32, ())
    assert exact_BT.dtype is torch.float64
    torch.testing.assert_close(loss.double(), expected.mean(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(exact_BT, expected, rtol=1e-12, atol=1e-12)


def test_bf16_is_close_to_fp32() -> None:
    losses = []
    for precision in ("fp32", "bf16"):
        model = build(precision=precision)
        stream_BT = torch.arange(34).view(2, 17) % 257
        losses.append(model(stream_BT[:, :-1], stream_BT[:, 1:]).item())
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=5e-3)


@pytest.mark.parametrize("length", [1, 7, 64, SHORT_SEQUENCE + 1])
def test_attention_in_bf16_is_attention(length: int) -> None:
    q, k, v = (torch.randn(2, 2, length, 8).bfloat16().requires_grad_() for _ in range(3))
    y = attend(q, k, v)
    exact = functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=True
    )
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.double(), exact, rtol=0.03, atol=0.03)
    for got, expected in zip(
        torch.autograd.grad(y.double().square().sum(), (q, k, v)),
        torch.autograd.grad(exact.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=0.1, atol=0.15)


def test_rotary_products_depend_on_distance_alone() -> None:
    rotary = Rotary(32, 8, CPU)
    q_K, k_K = torch.randn(2, 8)
    q = rotary(q_K.expand(1, 1, 32, 8))[0, 0]
    k = rotary(k_K.expand(1, 1, 32, 8))[0, 0]
    near = torch.stack([q[t + 3] @ k[t] for t in range(29)])
    torch.testing.assert_close(near, near[:1].expand(29), rtol=1e-4, atol=1e-4)
    assert abs(near[0] - q[9] @ k[0]) > 1e-3
    torch.testing.assert_close(q.norm(dim=-1), q_K.norm().expand(32))


def test_norms_are_what_their_names_say() -> None:
    x_ND = torch.randn(5, 32) * 3 + 1
    layer, rms = (Norm(config(d_model=32, norm=name), CPU) for name in ("layernorm", "rmsnorm"))
    with torch.no_grad():
        layer.gain_D.fill_(2.0)
        rms.gain_D.fill_(2.0)
    centred = x_ND - x_ND.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    torch.testing.assert_close(layer(x_ND), 2 * centred / (variance + 1e-5).sqrt())
    mean_square = x_ND.square().mean(-1, keepdim=True)
    torch.testing.assert_close(rms(x_ND), 2 * x_ND / (mean_square + 1e-5).sqrt())


def test_the_same_seed_gives_the_same_weights() -> None:
    one, two = build(), build()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


def test_fp8_is_refused_with_what_it_needs() -> None:
    backend = choose_backend("torch")
    with pytest.raises(SpecError):
        backend.check(config(precision="fp8"), CPU)
    backend.check(config(precision="bf16"), CPU)


# --- grouped queries -----------------------------------------------------------------------------


@torch.no_grad()
def written_out(grouped: TorchGPT) -> TorchGPT:
    """Return the same function without groups: keys and values repeated for each query head."""
    config = grouped.config
    whole = TorchGPT(config.model_copy(update={"n_kv_head": None}), 257, CPU)
    each = config.n_head // config.kv_heads
    for (name, theirs), mine in zip(whole.named_parameters(), grouped.parameters(), strict=True):
        if name.endswith("qkv_RD"):
            heads = mine.view(config.n_head + 2 * config.kv_heads, -1, config.d_model)
            q, k, v = heads.split([config.n_head, config.kv_heads, config.kv_heads])
            rows = (q, k.repeat_interleave(each, 0), v.repeat_interleave(each, 0))
            theirs.copy_(torch.cat(rows).flatten(0, 1))
        else:
            theirs.copy_(mine)
    return whole


@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 3e-2)])
def test_grouped_queries_share_their_keys_and_values(
    n_kv_head: int, positions: str, precision: str, tolerance: float
) -> None:
    grouped = build(n_head=4, n_kv_head=n_kv_head, positions=positions, precision=precision)
    with torch.no_grad():
        for block in grouped.blocks:
            block.qkv_RD.mul_(30)
    whole = written_out(grouped)
    tokens_BT = torch.randint(257, (3, 16))
    ours, theirs = grouped.logits(tokens_BT), whole.logits(tokens_BT)
    assert ours.std() > 0.05
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * theirs.abs().max().item())
    for model in (grouped, whole):
        model(tokens_BT, tokens_BT.roll(-1, 1)).backward()
    ours_out, theirs_out = (model.blocks[0].out_DD.grad for model in (grouped, whole))
    largest = theirs_out.abs().max().item()
    torch.testing.assert_close(ours_out, theirs_out, rtol=0, atol=tolerance * largest)


def test_as_many_groups_as_heads_are_no_groups() -> None:
    one, other = build(n_kv_head=None), build(n_kv_head=2)
    tokens_BT = torch.randint(257, (3, 16))
    assert torch.equal(one.logits(tokens_BT), other.logits(tokens_BT))
