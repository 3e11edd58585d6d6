"""Pad the vocabulary to a multiple of 128, as Megatron's launchers do, without changing any result.

Importing this module imports Megatron-Core.

Rows of an odd vocabulary are not aligned for wide loads, so matrix products over them run at a
fraction of the speed (50,257 words in bf16 are 100,514 bytes, 2 past a multiple of 16). Megatron
pads, and the model learns that the added words never occur. Here their logits are minus infinity,
so the softmax gives them no probability and no gradient. Their rows, 0 at the start, stay 0.

Shapes: T tokens, B sequences, V vocabulary, W padded vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from megatron.core.models.gpt import GPTModel
from torch import Tensor

from trainer.backends.megatron.weights import filled_up


class FilledUpGPT(GPTModel):  # type: ignore[misc]
    """A ``GPTModel`` of W words, the last W - V of which occur in no text."""

    def __init__(self, *, words: int, **options: Any) -> None:
        """:param words: V; the others are ``GPTModel``'s own arguments except ``vocab_size``."""
        super().__init__(vocab_size=filled_up(words), **options)
        self.words = words

    def compute_language_model_loss(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Return ``nll_BT`` over V words from ``labels_BT`` and ``logits_TBW``."""
        loss_BT: Tensor = super().compute_language_model_loss(labels, without(logits, self.words))
        return loss_BT


def without(logits_TBW: Tensor, words: int) -> Tensor:
    """Overwrite the tensor with minus infinity from column ``words`` on, and return it.

    Neither pass copies the V columns. In the backward pass the gradient of the overwritten columns
    is already 0, since their probability in the softmax is 0.
    """
    if logits_TBW.shape[-1] == words:
        return logits_TBW
    masked: Tensor = _Without.apply(logits_TBW, words)  # type: ignore[no-untyped-call]
    return masked


class _Without(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_TBW: Tensor, words: int) -> Tensor:
        ctx.mark_dirty(logits_TBW)
        logits_TBW[..., words:] = -math.inf
        return logits_TBW

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
