"""The head of a model whose config has its own ``logits`` or ``aux_loss``, in torch's operators.

Shapes: N tokens, C of them in a chunk, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.backends.coded.functions import code_function
from trainer.backends.products import linear
from trainer.memory.chunks import EXACT_LOGITS_AT_ONCE, chunk_tokens
from trainer.spec import Config


class CodedHead(nn.Module):
    """Logits and losses; the head's matrix is the model's."""

    def __init__(self, config: Config, vocab_size: int, device: torch.device) -> None:
        super().__init__()
        self.change = code_function("logits", config, vocab_size, device)
        self.auxiliary = code_function("aux_loss", config, vocab_size, device)

    @classmethod
    def of(cls, config: Config, vocab_size: int, device: torch.device) -> Self | None:
        """Return the config's own head; None if it has none."""
        wanted = config.code.keys() & {"code.logits", "code.aux_loss"}
        return cls(config, vocab_size, device) if wanted else None

    def logits(self, x_ND: Tensor, head_VD: Tensor) -> Tensor:
        """Return ``logits_NV``, fp32."""
        logits_NV = linear(x_ND, head_VD).float()
        if self.change is None:
            return logits_NV
        changed_NV: Tensor = self.change(logits_NV)
        return changed_NV

    def forward(self, x_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean loss in training and ``nll_N`` in evaluation, as
        :meth:`trainer.backends.base.Backend.build` says.

        It goes chunk by chunk, so that the logits of all tokens are never held.
        """
        most = () if self.training else (EXACT_LOGITS_AT_ONCE,)
        rows = chunk_tokens(len(x_ND), len(head_VD), *most)
        pieces = zip(torch.split(x_ND, rows), torch.split(targets_N, rows), strict=True)
        if self.training:
            losses = [
                checkpoint(self._summed, x_CD, head_VD, targets_C, use_reentrant=False)
                for x_CD, targets_C in pieces
            ]
            return torch.stack(losses).sum() / len(x_ND)
        return torch.cat([self._exact(x_CD, head_VD, targets_C) for x_CD, targets_C in pieces])

    def _summed(self, x_CD: Tensor, head_VD: Tensor, targets_C: Tensor) -> Tensor:
        """Return the loss of a chunk, summed over its tokens."""
        logits_CV = self.logits(x_CD, head_VD)
        loss = functional.cross_entropy(logits_CV, targets_C, reduction="sum")
        if self.auxiliary is None:
            return loss
        return loss + len(x_CD) * self.auxiliary.number(logits_CV, x_CD.float())

    def _exact(self, x_CD: Tensor, head_VD: Tensor, targets_C: Tensor) -> Tensor:
        logits_CV = self.logits(x_CD, head_VD).double()
        return functional.cross_entropy(logits_CV, targets_C, reduction="none")
