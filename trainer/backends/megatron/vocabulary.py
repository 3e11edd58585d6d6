"""A vocabulary filled up to a multiple of 128, as Megatron's launchers do, and no number the other
for it. Importing this module imports Megatron-Core.

An odd vocabulary makes rows that no wide load can start at, and matrix products over them a
fraction as fast (50,257 words in bf16 are 100,514 bytes, 2 past a multiple of 16). Megatron fills
up and lets the model learn that the words added never come; here they are taken out: their logits
are minus infinity, so the softmax gives them nothing and hands them no gradient, and their rows, 0
at the start, stay 0.

Shapes: T tokens, B sequences, V vocabulary, W the same filled up.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from megatron.core.models.gpt import GPTModel
from torch import Tensor

from trainer.backends.megatron.weights import filled_up


class FilledUpGPT(GPTModel):  # type: ignore[misc]
    """``GPTModel`` of W words, the last W - V of which no text has."""

    def __init__(self, *, words: int, **options: Any) -> None:
        """:param words: V; the rest are ``GPTModel``'s own arguments but for ``vocab_size``."""
        super().__init__(vocab_size=filled_up(words), **options)
        self.words = words

    def compute_language_model_loss(self, labels: Tensor, logits: Tensor) -> Tensor:
        """``labels_BT`` and ``logits_TBW`` to ``nll_BT``, over V words."""
        loss_BT: Tensor = super().compute_language_model_loss(labels, without(logits, self.words))
        return loss_BT


def without(logits_TBW: Tensor, words: int) -> Tensor:
    """The same tensor, overwritten with minus infinity from column ``words`` on.

    Nothing of V columns is copied, there or on the way back, where the gradient of what was
    overwritten is 0 already: a softmax's, times a probability of 0.
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
