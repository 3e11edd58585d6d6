"""The head's logits and losses, which never hold the logits of all tokens.

A CPU runs :class:`Head`, and CUDA without Triton, and a config whose own function changes the
logits or adds a loss. Its backward pass computes a chunk's logits again. :class:`FusedHead`
computes the same loss on our own kernels, and its gradient in the forward pass.

Shapes: N tokens, C of them in a chunk, D d_model, V vocabulary, W = V padded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.backends.coded import code_function
from trainer.backends.kernels import operations, padded
from trainer.backends.products import linear
from trainer.backends.weights import RoundedWeight, add_product_fp32_, product_fp32
from trainer.memory.parts import EXACT_LOGITS_AT_ONCE, chunk_tokens
from trainer.schema import Config


def _chunks(rows: int, *whole: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors in chunks of as many rows."""
    return zip(*(torch.split(x, rows) for x in whole), strict=True)


class Head(nn.Module):
    """Logits and losses; the head's matrix is the model's."""

    def __init__(self, config: Config, vocab_size: int, device: torch.device) -> None:
        super().__init__()
        self.change = code_function("logits", config, vocab_size, device)
        self.auxiliary = code_function("aux_loss", config, vocab_size, device)
        self.is_plain = self.change is None and self.auxiliary is None

    def logits(self, x_ND: Tensor, head_VD: Tensor) -> Tensor:
        """Return ``logits_NV``, fp32."""
        logits_NV = linear(x_ND, head_VD).float()
        if self.change is None:
            return logits_NV
        changed_NV: Tensor = self.change(logits_NV)
        return changed_NV

    def forward(self, x_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean loss in training and ``nll_N`` in evaluation, as
        :meth:`trainer.backends.Backend.build` says.

        It goes chunk by chunk, so that the logits of all tokens are never held. If all fit into one
        chunk, the plain loss keeps them for the backward pass.
        """
        tokens, vocab_size = len(x_ND), len(head_VD)
        if not self.training:
            rows = chunk_tokens(tokens, vocab_size, EXACT_LOGITS_AT_ONCE)
            pieces = _chunks(rows, x_ND, targets_N)
            return torch.cat(
                [_exact_nll(self.logits(x_CD, head_VD), targets_C) for x_CD, targets_C in pieces]
            )
        rows = chunk_tokens(tokens, vocab_size)
        if rows == tokens and self.is_plain:
            logits_NV = self.logits(x_ND, head_VD)
            return functional.cross_entropy(logits_NV, targets_N, reduction="none").mean()
        losses = [
            checkpoint(self._summed, x_CD, head_VD, targets_C, use_reentrant=False)
            for x_CD, targets_C in _chunks(rows, x_ND, targets_N)
        ]
        return torch.stack(losses).sum() / tokens

    def _summed(self, x_CD: Tensor, head_VD: Tensor, targets_C: Tensor) -> Tensor:
        """Return the loss of a chunk, summed over its tokens."""
        logits_CV = self.logits(x_CD, head_VD)
        loss = functional.cross_entropy(logits_CV, targets_C, reduction="sum")
        if self.auxiliary is None:
            return loss
        return loss + len(x_CD) * self.auxiliary.number(logits_CV, x_CD.float())


def exact_nll_of_logits(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return ``nll_N`` of existing logits, which are converted to fp64 a chunk at a time."""
    tokens, vocab_size = logits_NV.shape
    rows = chunk_tokens(tokens, vocab_size, EXACT_LOGITS_AT_ONCE)
    pieces = _chunks(rows, logits_NV, targets_N)
    return torch.cat([_exact_nll(logits_CV, targets_C) for logits_CV, targets_C in pieces])


def _exact_nll(logits_CV: Tensor, targets_C: Tensor) -> Tensor:
    if logits_CV.is_cuda:
        return nll_with_fp64_sums(logits_CV, targets_C)
    return functional.cross_entropy(logits_CV.double(), targets_C, reduction="none")


def nll_with_fp64_sums(logits_CV: Tensor, targets_C: Tensor) -> Tensor:
    """Return ``nll_C`` in fp64 nats from exponentials in fp32 that are summed in fp64.

    The kernel of :mod:`trainer.backends.kernels.triton_cross_entropy` does the same, since a GB10
    has one fp64 unit for 64 of fp32.
    """
    logits_CV = logits_CV.float()
    largest_C1 = logits_CV.amax(1, keepdim=True)
    chosen_C1 = logits_CV.gather(1, targets_C[:, None]).double() - largest_C1
    sum_C = (logits_CV - largest_C1).exp_().sum(1, dtype=torch.float64)
    return sum_C.log() - chosen_C1[:, 0]


class FusedHead:
    """The losses of a head on :mod:`trainer.backends.kernels`, on logits whose rows are padded."""

    def __init__(self, head_VD: nn.Parameter, dtype: torch.dtype) -> None:
        self.vocab_size = head_VD.shape[0]
        self.weight = RoundedWeight(head_VD, dtype, rows=padded(self.vocab_size))

    def mean_loss(self, x_ND: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats, an fp32 scalar, differentiable once."""
        loss: Tensor = _MeanLoss.apply(  # type: ignore[no-untyped-call]
            x_ND, self.weight.parameter, targets_N, self
        )
        return loss

    def exact_nll(self, x_ND: Tensor, targets_N: Tensor) -> Tensor:
        """Return ``nll_N`` in fp64 nats."""
        rows = chunk_tokens(len(x_ND), self.vocab_size)
        return torch.cat(
            [
                operations.exact_nll(self.weight.product(x_CD), targets_C, self.vocab_size)
                for x_CD, targets_C in _chunks(rows, x_ND, targets_N)
            ]
        )


class _MeanLoss(torch.autograd.Function):
    """The mean loss.

    The forward pass computes gradients from each chunk's logits; the backward pass returns them.
    """

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, parameter: Tensor, targets_N: Tensor, head: FusedHead
    ) -> Tensor:
        tokens, weight_WD = x_ND.shape[0], head.weight.copy
        gradient_ND = torch.empty_like(x_ND)
        gradient_WD: Tensor | None = None
        losses = []
        rows = chunk_tokens(tokens, head.vocab_size)
        for x_CD, targets_C, into_CD in _chunks(rows, x_ND, targets_N, gradient_ND):
            logits_CW = torch.mm(x_CD, weight_WD.t())
            losses.append(
                operations.loss_and_gradient_(logits_CW, targets_C, head.vocab_size, 1.0 / tokens)
            )
            torch.mm(logits_CW, weight_WD, out=into_CD)
            if gradient_WD is None:
                gradient_WD = product_fp32(logits_CW.t(), x_CD)
            else:
                add_product_fp32_(gradient_WD, logits_CW.t(), x_CD)
            del logits_CW  # before the next chunk's are computed
        assert gradient_WD is not None
        ctx.gradients = gradient_ND, gradient_WD[: head.vocab_size]
        return torch.cat(losses).sum() / tokens

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("this loss was differentiated before, and kept no gradients for it")
        gradient_ND, gradient_VD = ctx.gradients
        ctx.gradients = None
        return gradient_ND.mul_(upstream), gradient_VD.mul_(upstream), None, None
