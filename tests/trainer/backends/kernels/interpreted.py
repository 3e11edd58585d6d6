"""Triton's kernels in Triton's interpreter agree with their written-out forms.

tests/trainer/backends/kernels/test_kernels.py runs this module in a process with
TRITON_INTERPRET=1, because Triton reads that variable when it defines a kernel.
"""

import importlib
from dataclasses import replace

import pytest
import torch

from tests.support.kernels import VOCAB, Call, assert_same, calls, fp32_heads
from trainer.backends.kernels import operations, triton_cross_entropy, triton_heads, triton_norm

pytestmark = pytest.mark.filterwarnings("ignore")  # NumPy warns of NaN


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use so few programs that each runs its loop more than once."""
    monkeypatch.setattr(triton_norm, "_PROGRAMS", 2)
    monkeypatch.setattr(triton_heads, "_PROGRAMS", 2)
    monkeypatch.setattr(triton_heads, "_BLOCK", 64)


@pytest.mark.parametrize("call", list(calls()), ids=lambda call: call.name)
def test_a_kernel_computes_what_is_written_out(call: Call) -> None:
    module = importlib.import_module(f"trainer.backends.kernels.triton_{call.kernels}")
    got, wanted = call.of(module), call.of(operations)
    assert_same(got, wanted)


@pytest.mark.parametrize("call", fp32_heads(), ids=lambda call: call.name)
def test_heads_are_exact_to_fp32(call: Call) -> None:
    wide = [a.double() if isinstance(a, torch.Tensor) else a for a in call.arguments]
    wanted = replace(call, arguments=tuple(wide)).of(operations)
    for one, other in zip(call.of(triton_heads), wanted, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_are_seen(broken: float) -> None:
    logits_CW = torch.zeros(2, 4160)
    logits_CW[1, VOCAB - 1] = broken
    targets_C = torch.tensor([5, 5])
    nll_C = triton_cross_entropy.exact_nll(logits_CW, targets_C, VOCAB)
    loss_C = triton_cross_entropy.loss_and_gradient_(logits_CW, targets_C, VOCAB, 1.0)
    assert loss_C.isfinite().tolist() == nll_C.isfinite().tolist() == [True, False]


def test_what_lies_behind_the_vocabulary_is_never_read() -> None:
    logits_CW = torch.randn(2, 4160, generator=torch.Generator().manual_seed(1))
    targets_C = torch.tensor([7, 4098])
    spoilt_CW = logits_CW.clone()
    spoilt_CW[:, VOCAB:] = torch.nan
    run = triton_cross_entropy.loss_and_gradient_
    clean_C, dirty_C = (run(x, targets_C, VOCAB, 1.0) for x in (logits_CW, spoilt_CW))
    assert torch.equal(clean_C, dirty_C)
    assert torch.equal(logits_CW, spoilt_CW)
    assert (spoilt_CW[:, VOCAB:] == 0).all()


def test_exact_likelihoods_are_exact_to_eight_digits() -> None:
    """Exponentials are fp32: a token errs by about 1e-7, and the mean of many tokens by less."""
    logits_CW = 3 * torch.randn(64, 4160, generator=torch.Generator().manual_seed(2))
    targets_C = torch.arange(64)
    got_C = triton_cross_entropy.exact_nll(logits_CW, targets_C, VOCAB)
    wanted_C = operations.exact_nll(logits_CW, targets_C, VOCAB)
    assert (got_C - wanted_C).abs().max() < 3e-7
    assert abs((got_C - wanted_C).mean()) < 1e-8 * wanted_C.mean()
