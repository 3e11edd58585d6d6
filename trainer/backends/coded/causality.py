"""Check that a model's logits depend on earlier tokens of their own sequence alone.

The check compares the model with itself, on whichever weights it has: it is run on small models
with random weights before a function is tried, and on the trained weights before they are scored.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.backends.coded.functions import CodeFailed
from trainer.spec import Config

_SAME_SHAPE = 1e-5
"""Largest difference between logits from products of the same shapes, as a share of the largest."""
_OTHER_SHAPE = {"fp32": 1e-3, "bf16": 0.1, "fp8": 0.3}
"""Tolerance, by precision, between products of other shapes, which sum in another order."""


@torch.no_grad()
def check_causality(model: nn.Module, tokens_BT: Tensor, config: Config) -> None:
    """Compare the logits with those where later tokens, or other sequences, are others or missing,
    in training and in scoring.

    :raises CodeFailed: if they differ.
    """
    tokens_BT = tokens_BT.to(next(model.parameters()).device)
    was_training = model.training
    try:
        for training in (True, False):
            model.train(training)
            _check(model, tokens_BT, _OTHER_SHAPE[config.precision], ", ".join(config.code))
    finally:
        model.train(was_training)


def _check(model: nn.Module, tokens_BT: Tensor, loose: float, named: str) -> None:
    logits: Tensor = model.logits(tokens_BT)  # type: ignore[operator]
    mode = "training" if model.training else "scoring"
    batch, length = tokens_BT.shape
    others = tokens_BT.flip(0, 1)
    for end in sorted({1, 2, length // 2, length - 1}):
        changed = torch.cat((tokens_BT[:, :end], others[:, end:]), 1)
        _same(model, changed, logits, (batch, end), _SAME_SHAPE, f"later tokens ({mode}): {named}")
        _same(model, tokens_BT[:, :end], logits, (batch, end), loose, f"length ({mode}): {named}")
    for rows in range(1, batch):
        changed = torch.cat((tokens_BT[:rows], others[rows:]))
        why = f"other sequences ({mode}): {named}"
        _same(model, changed, logits, (rows, length), _SAME_SHAPE, why)
        _same(model, tokens_BT[:rows], logits, (rows, length), loose, why)


def _same(
    model: nn.Module,
    tokens: Tensor,
    logits: Tensor,
    part: tuple[int, int],
    share: float,
    why: str,
) -> None:
    rows, end = part
    wanted: Tensor = logits[:rows, :end]
    found: Tensor = model.logits(tokens)[:rows, :end]  # type: ignore[operator]
    gap = (found - wanted).abs().max()
    if not bool(gap <= share * wanted.abs().max().clamp(min=1e-3)):
        raise CodeFailed(
            f"the logits at a position change with its {why}; use only the numbers of one token"
        )
