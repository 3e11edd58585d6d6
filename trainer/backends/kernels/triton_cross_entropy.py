"""Turn logits into their loss and its gradient in place, or into exact likelihoods.

Each row has one program. A row of 50,257 words is 100 kB in bf16. The kernel reads it from memory
once, and a moment later from the L2 cache, which holds the rows of all programs in flight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
_WARPS = 8


@triton.jit
def _largest_and_sum(logits_ptr, vocab, BLOCK: tl.constexpr):
    """Return the largest of a row, and the sum of e^(x - largest), in one pass; fp32."""
    largest = tl.full([], -float("inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    for start in range(0, vocab, BLOCK):
        word = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + word, mask=word < vocab, other=-float("inf")).to(tl.float32)
        above = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - above) + tl.sum(tl.exp(x - above), 0)
        largest = above
    return largest, total


@triton.jit
def _loss_and_gradient(logits_ptr, targets_ptr, loss_ptr, vocab, width, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * width
    target = tl.load(targets_ptr + row)
    at_target = tl.load(logits_ptr + target).to(tl.float32)
    largest, total = _largest_and_sum(logits_ptr, vocab, BLOCK)
    log_sum = largest + tl.log(total)
    tl.store(loss_ptr + row, log_sum - at_target)
    # The last sum synchronizes all warps, so they have read their logits before any is overwritten.
    for start in range(0, width, BLOCK):
        word = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + word, mask=word < vocab, other=-float("inf")).to(tl.float32)
        gradient = (tl.exp(x - log_sum) - tl.where(word == target, 1.0, 0.0)) * scale
        gradient = tl.where(word < vocab, gradient, 0.0)
        tl.store(logits_ptr + word, gradient.to(logits_ptr.dtype.element_ty), mask=word < width)


@triton.jit
def _exact_nll(logits_ptr, targets_ptr, nll_ptr, vocab, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * width
    at_target = tl.load(logits_ptr + tl.load(targets_ptr + row)).to(tl.float64)
    largest = tl.full([], -float("inf"), tl.float32)
    for start in range(0, vocab, BLOCK):
        word = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + word, mask=word < vocab, other=-float("inf")).to(tl.float32)
        largest = tl.maximum(largest, tl.max(x, 0))
    # Exponentials are fp32, their sum fp64. That needs only one fp64 addition per logit, for GPUs
    # with few fp64 units (a GB10 has one for 64 of fp32).
    totals = tl.zeros([BLOCK], tl.float64)
    for start in range(0, vocab, BLOCK):
        word = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + word, mask=word < vocab, other=-float("inf")).to(tl.float32)
        totals += tl.exp(x - largest).to(tl.float64)
    nll = tl.log(tl.sum(totals, 0)) + largest.to(tl.float64) - at_target
    tl.store(nll_ptr + row, nll)


def loss_and_gradient_(
    logits_CW: Tensor, targets_C: Tensor, vocab_size: int, scale: float
) -> Tensor:
    rows, width = logits_CW.shape
    loss_C = torch.empty(rows, dtype=torch.float32, device=logits_CW.device)
    _loss_and_gradient[(rows,)](
        logits_CW, targets_C, loss_C, vocab_size, width, scale, BLOCK=_BLOCK, num_warps=_WARPS
    )
    return loss_C


def exact_nll(logits_CW: Tensor, targets_C: Tensor, vocab_size: int) -> Tensor:
    rows, width = logits_CW.shape
    nll_C = torch.empty(rows, dtype=torch.float64, device=logits_CW.device)
    _exact_nll[(rows,)](
        logits_CW, targets_C, nll_C, vocab_size, width, BLOCK=_BLOCK, num_warps=_WARPS
    )
    return nll_C
