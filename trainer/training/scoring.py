"""The evaluation protocol: score all of a text, every target once, alike for every config."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from trainer.training.schedule import Tokens, to_device

TOKENS_PER_PASS = 4096
"""Tokens scored in one forward pass on a CPU, but at least one window. No config changes it."""
TOKENS_PER_CUDA_PASS = 16_384
"""Tokens scored in one forward pass on CUDA, whose products need many tokens for full speed."""
LOGITS_PER_PASS = 1 << 28
"""Bound on tokens × vocabulary of a pass: half a GiB of bf16 logits if a model holds them all."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The held-out negative log-likelihood, and the number of targets."""

    nll_nats: float
    """Sum over all targets, in float64."""
    tokens: int
    """Targets scored: the whole stream except its first token, a separator without context."""

    @property
    def bits_per_token(self) -> float:
        return self.nll_nats / (math.log(2) * self.tokens)

    def bits_per_byte(self, heldout_bytes: int) -> float:
        """Return sum(NLL in nats) / (ln 2 × UTF-8 bytes scored)."""
        return self.nll_nats / (math.log(2) * heldout_bytes)


@torch.inference_mode()
def evaluate(model: nn.Module, heldout: Tokens, *, seq_len: int, vocab_size: int) -> Evaluation:
    """Score ``heldout`` in windows of ``seq_len`` that share no target, the last one shorter.

    Logits have the config's training precision, which is part of what is measured (bf16 logits
    have three digits). The rest is float64: the model's log-softmax
    (:meth:`trainer.backends.Backend.build`) and the sum here. As an exception, CUDA's kernels
    take exponentials in fp32 and add them up in fp64. Separators are targets too, since the end of
    a document is something to predict.
    """
    device = next(model.parameters()).device
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=device)
    at_once = tokens_per_pass(model, device, vocab_size)
    for tokens_BT, targets_BT in windows(heldout, seq_len, max(1, at_once // seq_len)):
        nll_BT = model(to_device(tokens_BT, device), to_device(targets_BT, device))
        total += nll_BT.sum(dtype=torch.float64)
    return Evaluation(nll_nats=total.item(), tokens=len(heldout) - 1)


def tokens_per_pass(model: nn.Module, device: torch.device, vocab_size: int) -> int:
    """Return how many tokens one forward pass scores.

    A model with ``chunks_logits`` holds the logits of few tokens at a time, however long a pass is.
    On a CPU that makes no difference, so that every number stays the sum of the same products.
    """
    if device.type == "cpu":
        return min(TOKENS_PER_PASS, LOGITS_PER_PASS // vocab_size)
    if getattr(model, "chunks_logits", False):
        return TOKENS_PER_CUDA_PASS
    return min(TOKENS_PER_CUDA_PASS, LOGITS_PER_PASS // vocab_size)


def windows(stream: Tokens, seq_len: int, per_pass: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens and targets, int64, of shape (up to ``per_pass``, ``seq_len``).

    The rest at the end has shape (1, fewer). Each token except the first is a target once.
    """
    whole, rest = divmod(len(stream) - 1, seq_len)
    shapes = [(min(per_pass, whole - first), seq_len) for first in range(0, whole, per_pass)]
    start = 0
    for count, length in [*shapes, (1, rest)] if rest else shapes:
        end = start + count * length
        piece = torch.from_numpy(stream[start : end + 1].astype(np.int64))
        yield piece[:-1].view(count, length), piece[1:].view(count, length)
        start = end
