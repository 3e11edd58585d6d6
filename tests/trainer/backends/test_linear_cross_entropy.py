"""The chunked loss agrees with the whole one in value and gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.support.configs import config
from trainer.backends import linear_cross_entropy
from trainer.backends.linear_cross_entropy import Head, exact_nll_of_logits, nll_with_fp64_sums
from trainer.memory import parts
from trainer.memory.parts import chunk_tokens

CPU = torch.device("cpu")
VOCAB = 97


@given(tokens=st.integers(1, 5000), vocab_size=st.integers(1, 70_000))
def test_a_chunk_is_bounded_and_no_smaller_than_half_of_that(tokens: int, vocab_size: int) -> None:
    bound = 1 << 22
    chunk = chunk_tokens(tokens, vocab_size, bound)
    assert 1 <= chunk <= tokens
    assert chunk * vocab_size <= bound
    if chunk < tokens:
        assert (2 * chunk + 1) * vocab_size > bound // 2


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the logits held at once to 8 tokens."""

    def eight(tokens: int, vocab_size: int, logits_at_once: int = 0) -> int:
        return parts.chunk_tokens(tokens, vocab_size, 8 * vocab_size)

    monkeypatch.setattr(linear_cross_entropy, "chunk_tokens", eight)


def problem(tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x_ND = torch.randn(tokens, 24, generator=generator).to(dtype).requires_grad_()
    head_VD = torch.randn(VOCAB, 24, generator=generator).requires_grad_()
    return x_ND, head_VD, torch.randint(VOCAB, (tokens,), generator=generator)


HEAD = Head(config(), VOCAB, CPU)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("tokens", [16, 19, 37])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)], ids=["fp32", "bf16"]
)
def test_a_loss_in_chunks_is_the_loss(tokens: int, dtype: torch.dtype, tolerance: float) -> None:
    x_ND, head_VD, targets_N = problem(tokens, dtype)
    loss = HEAD.train()(x_ND, head_VD, targets_N)
    # a multiple of the loss, so that the upstream gradient matters
    gradients = torch.autograd.grad(3 * loss, (x_ND, head_VD))
    logits_NV = functional.linear(x_ND.double(), head_VD.to(dtype).double())
    expected = functional.cross_entropy(logits_NV, targets_N)
    wanted = torch.autograd.grad(3 * expected, (x_ND, head_VD))
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance)
    for got, want in zip(gradients, wanted, strict=True):
        assert got.dtype is want.dtype
        largest = want.abs().max().item()
        torch.testing.assert_close(got, want, rtol=0, atol=tolerance * largest)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_evaluation_is_exact_from_the_logits_on(dtype: torch.dtype) -> None:
    x_ND, head_VD, targets_N = problem(19, dtype)
    logits_NV = functional.linear(x_ND, head_VD.to(dtype))
    nll_N = HEAD.eval()(x_ND, head_VD, targets_N)
    expected_N = -logits_NV.double().log_softmax(-1)[torch.arange(19), targets_N]
    assert nll_N.dtype is torch.float64
    torch.testing.assert_close(
        exact_nll_of_logits(logits_NV, targets_N), expected_N, rtol=1e-13, atol=1e-13
    )
    near = 1e-5 if dtype is torch.float32 else 0.1  # a product of fewer rows may round differently
    torch.testing.assert_close(nll_N, expected_N, rtol=0, atol=near)
    assert nll_N.mean().item() > math.log(VOCAB) / 2


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_gpus_scores_are_fp64s_to_seven_digits(dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(3)
    logits_NV = (scale * torch.randn(64, 50_257, generator=generator)).to(dtype)
    targets_N = torch.randint(50_257, (64,), generator=generator)
    expected_N = functional.cross_entropy(logits_NV.double(), targets_N, reduction="none")
    got_N = nll_with_fp64_sums(logits_NV, targets_N)
    assert got_N.dtype is torch.float64
    torch.testing.assert_close(got_N, expected_N, rtol=3e-7, atol=3e-7)
    assert (got_N - expected_N).mean().abs() < 3e-8 * max(1.0, expected_N.mean().item())
