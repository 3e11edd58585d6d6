"""The chunked loss agrees with the whole one in value and gradients, and bounds its memory."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from trainer.backends import linear_cross_entropy
from trainer.backends.linear_cross_entropy import (
    exact_nll,
    exact_nll_of_logits,
    loss_and_gradient,
    mean_loss,
    nll_with_fp64_sums,
)
from trainer.memory import parts
from trainer.memory.parts import CHUNK_BYTES, chunk_tokens

CPU = torch.device("cpu")
VOCAB = 97


@given(tokens=st.integers(1, 5000), vocab_size=st.integers(1, 70_000))
def test_a_chunk_is_bounded_and_no_smaller_than_half_the_bound_allows(
    tokens: int, vocab_size: int
) -> None:
    bound = 1 << 22
    chunk = chunk_tokens(tokens, vocab_size, bound)
    assert 1 <= chunk <= tokens
    assert chunk * vocab_size <= bound
    if chunk < tokens:
        assert (2 * chunk + 1) * vocab_size > bound // 2


def test_chunks_are_of_one_size_where_that_is_possible() -> None:
    assert chunk_tokens(16 * 1024, 50_257) == 2048
    assert chunk_tokens(3 * 1000, 50_257) == 1500
    assert chunk_tokens(8 * 128, 1024) == 1024


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Limit the logits held at once to 8 tokens; return the list of chunk sizes seen."""
    seen: list[int] = []

    def eight(tokens: int, vocab_size: int, logits_at_once: int = 0) -> int:
        return parts.chunk_tokens(tokens, vocab_size, 8 * vocab_size)

    def spy(logits_CV: Tensor, targets_C: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        seen.append(logits_CV.shape[0])
        return loss_and_gradient(logits_CV, targets_C, scale)

    monkeypatch.setattr(linear_cross_entropy, "chunk_tokens", eight)
    monkeypatch.setattr("trainer.backends.torch_gpt.loss_and_gradient", spy)
    return seen


def problem(tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x_ND = torch.randn(tokens, 24, generator=generator).to(dtype).requires_grad_()
    head_VD = torch.randn(VOCAB, 24, generator=generator).requires_grad_()
    return x_ND, head_VD, torch.randint(VOCAB, (tokens,), generator=generator)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("tokens", [16, 19, 37])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)], ids=["fp32", "bf16"]
)
def test_a_loss_in_chunks_is_the_loss(tokens: int, dtype: torch.dtype, tolerance: float) -> None:
    x_ND, head_VD, targets_N = problem(tokens, dtype)
    loss = mean_loss(x_ND, head_VD, targets_N, loss_and_gradient)
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
def test_a_certain_and_right_answer_costs_nothing_and_a_wrong_one_stays_finite() -> None:
    head_VD = torch.eye(VOCAB).requires_grad_()
    for sure, targets_N in ((300.0, torch.arange(16)), (300.0, torch.arange(16).flip(0))):
        x_ND = (sure * torch.eye(VOCAB)[:16]).requires_grad_()
        loss = mean_loss(x_ND, head_VD, targets_N, loss_and_gradient)
        right = bool((targets_N == torch.arange(16)).all())
        assert loss.item() == pytest.approx(0.0 if right else 300.0, abs=1e-4)
        (gradient,) = torch.autograd.grad(loss, x_ND)
        assert gradient.isfinite().all()


@pytest.mark.usefixtures("small_chunks")
def test_a_loss_gives_its_gradients_once() -> None:
    x_ND, head_VD, targets_N = problem(16, torch.float32)
    loss = mean_loss(x_ND, head_VD, targets_N, loss_and_gradient)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated before"):
        loss.backward()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_holds_what_the_memory_estimate_says() -> None:
    tokens, vocab_size, width = 8192, 50_257, 1024
    device = torch.device("cuda")
    x_ND = torch.randn(tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True)
    head_VD = (0.02 * torch.randn(vocab_size, width, device=device)).requires_grad_()
    targets_N = torch.randint(vocab_size, (tokens,), device=device)
    mean_loss(x_ND[:16], head_VD, targets_N[:16], loss_and_gradient)  # allocates cuBLAS's workspace
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    loss = mean_loss(x_ND, head_VD, targets_N, loss_and_gradient)
    held = torch.cuda.max_memory_allocated(device) - before
    assert loss.item() == pytest.approx(math.log(vocab_size), rel=0.1)
    chunk = chunk_tokens(tokens, vocab_size)
    head = (2 + 4) * vocab_size * width  # the head's bf16 copy and its gradient
    expected = CHUNK_BYTES * chunk * vocab_size + head + 2 * tokens * width
    assert held == pytest.approx(expected, rel=0.2)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_evaluation_is_exact_from_the_logits_on(dtype: torch.dtype) -> None:
    x_ND, head_VD, targets_N = problem(19, dtype)
    logits_NV = functional.linear(x_ND, head_VD.to(dtype))
    nll_N = exact_nll(x_ND, head_VD, targets_N)
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
