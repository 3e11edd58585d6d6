"""The transformer's blocks and loss on :mod:`trainer.backends.kernels`: a step on a GPU.

They compute the same functions as :class:`trainer.backends.blocks.Block` and
:mod:`linear_cross_entropy`, divided so as to move less memory. For its backward pass a block keeps
the residual stream at both norms, queries, keys, values, attention's output and the activation's
input. That is ten model widths per token at F = 4 D, while autograd over torch's operators keeps
sixteen. Kernels that read kept tensors anyway recompute the outputs of norms and activations.

The residual stream consists of two tensors: ``x``, and a delta that the next norm's kernel adds.

For shapes see :mod:`trainer.backends.torch_gpt`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trainer.backends.fused_functions import (
    activation_linear,
    linear,
    norm_linear,
    normed,
    normed_heads,
)
from trainer.backends.kernels import operations, padded
from trainer.backends.weights import (
    Float8Weight,
    RoundedWeight,
    Weight,
    add_product_fp32_,
    product_fp32,
)
from trainer.memory.parts import chunk_tokens

if TYPE_CHECKING:
    from trainer.backends.blocks import Block, Norm, Rotary


class FusedBlock:
    """A block on kernels, which uses the parameters of a :class:`Block`."""

    def __init__(self, block: Block, dtype: torch.dtype, *, float8: bool) -> None:
        self._block = block

        def weight(parameter: nn.Parameter) -> Weight:
            return Float8Weight(parameter) if float8 else RoundedWeight(parameter, dtype)

        self.qkv, self.out = weight(block.qkv_RD), weight(block.out_DD)
        self.up, self.down = weight(block.up_FD), weight(block.down_DF)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return self.qkv, self.out, self.up, self.down

    def __call__(
        self, x_ND: Tensor, delta_ND: Tensor | None, batch: int, rotary: Rotary | None
    ) -> tuple[Tensor, Tensor]:
        """Run the block on ``x`` and ``delta``, whose sum is its input; return the same pair."""
        block = self._block
        x_ND, qkv_NR = _entering(x_ND, delta_ND, block.attention_norm, self.qkv)
        attended_ND = linear(block.attend_heads(qkv_NR, batch, rotary, normed_heads), self.out)
        attended_ND = self._branch(attended_ND, block.attention_output_norm)
        x_ND, up = _entering(x_ND, attended_ND, block.feed_forward_norm, self.up)
        fed_ND = activation_linear(up, self.down, block.activation)
        return x_ND, self._branch(fed_ND, block.feed_forward_output_norm)

    def _branch(self, y_ND: Tensor, output_norm: Norm | None) -> Tensor:
        """Return what half a block adds to the residual stream."""
        if output_norm is not None:
            y_ND = normed(y_ND, None, output_norm)
        scale = self._block.branch_scale
        return y_ND if scale == 1.0 else y_ND * scale


def _entering(
    x_ND: Tensor, delta_ND: Tensor | None, norm: Norm | None, weight: Weight
) -> tuple[Tensor, Tensor]:
    """Return ``x + delta``, and the product of its norm, or of itself if there is no norm."""
    if norm is not None:
        return norm_linear(x_ND, delta_ND, norm, weight)
    if delta_ND is not None:
        x_ND = x_ND + delta_ND
    return x_ND, linear(x_ND, weight)


class FusedHead:
    """The head's losses, on logits whose rows are padded."""

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
        return torch.cat(
            [
                operations.exact_nll(self.weight.product(x_CD), targets_C, self.vocab_size)
                for x_CD, targets_C in self.chunks(x_ND, targets_N)
            ]
        )

    def chunks(self, x_ND: Tensor, targets_N: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """Yield chunks of as many tokens as :mod:`trainer.memory.parts` allows logits for."""
        chunk = chunk_tokens(x_ND.shape[0], self.vocab_size)
        return zip(torch.split(x_ND, chunk), torch.split(targets_N, chunk), strict=True)


class _MeanLoss(torch.autograd.Function):
    """The mean loss, as in :mod:`trainer.backends.linear_cross_entropy`.

    The forward pass computes gradients from each chunk's logits; the backward pass returns them.
    """

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, parameter: Tensor, targets_N: Tensor, head: FusedHead
    ) -> Tensor:
        tokens, weight_WD = x_ND.shape[0], head.weight.copy
        gradient_ND = torch.empty_like(x_ND)
        into_ND = iter(torch.split(gradient_ND, chunk_tokens(tokens, head.vocab_size)))
        gradient_WD: Tensor | None = None
        losses = []
        for x_CD, targets_C in head.chunks(x_ND, targets_N):
            logits_CW = torch.mm(x_CD, weight_WD.t())
            losses.append(
                operations.loss_and_gradient_(logits_CW, targets_C, head.vocab_size, 1.0 / tokens)
            )
            torch.mm(logits_CW, weight_WD, out=next(into_ND))
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
