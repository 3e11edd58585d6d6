"""The transformer's blocks and loss on :mod:`trainer.backends.kernels`: a step on a GPU.

The same functions as :class:`trainer.backends.blocks.Block` and :mod:`linear_cross_entropy`
compute, cut where the memory's traffic wants it. A block keeps for its backward pass the residual
stream at both norms, queries, keys, values and attention's output, and the activation's input: ten
widths of the model a token at F = 4 D, where autograd over torch's operators keeps sixteen. The
norms' outputs and the activation's are made again, by kernels that read what is kept anyway.

The residual stream runs as two: ``x`` and what is still to be added to it, which the next norm's
kernel does in passing.

Shapes as in :mod:`trainer.backends.torch_gpt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trainer.backends.kernels import operations
from trainer.backends.kernels.sizes import padded
from trainer.backends.weights import (
    Float8Weight,
    RoundedWeight,
    Weight,
    add_product_fp32_,
    product_fp32,
)
from trainer.memory.chunks import chunk_tokens
from trainer.spec import Activation

if TYPE_CHECKING:
    from trainer.backends.blocks import Block, Norm, Rotary


class FusedBlock:
    """Runs a block's parameters."""

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
        """``x`` and ``delta``, the sum of which is the block's input; the same of its output."""
        block = self._block
        x_ND, qkv_NR = _entering(x_ND, delta_ND, block.attention_norm, self.qkv)
        attended_ND = linear(block.attend_heads(qkv_NR, batch, rotary), self.out)
        attended_ND = self._branch(attended_ND, block.attention_output_norm)
        x_ND, up = _entering(x_ND, attended_ND, block.feed_forward_norm, self.up)
        fed_ND = activation_linear(up, self.down, block.activation)
        return x_ND, self._branch(fed_ND, block.feed_forward_output_norm)

    def _branch(self, y_ND: Tensor, output_norm: Norm | None) -> Tensor:
        """What a half adds to the stream."""
        if output_norm is not None:
            y_ND = normed(y_ND, output_norm)
        scale = self._block.branch_scale
        return y_ND if scale == 1.0 else y_ND * scale


def _entering(
    x_ND: Tensor, delta_ND: Tensor | None, norm: Norm | None, weight: Weight
) -> tuple[Tensor, Tensor]:
    """``x + delta``, and the product of its norm, or of itself where there is none."""
    if norm is not None:
        return norm_linear(x_ND, delta_ND, norm, weight)
    if delta_ND is not None:
        x_ND = x_ND + delta_ND
    return x_ND, linear(x_ND, weight)


class FusedHead:
    """The losses of the head, on logits whose rows are padded."""

    def __init__(self, head_VD: nn.Parameter, dtype: torch.dtype) -> None:
        self.vocab_size = head_VD.shape[0]
        self.weight = RoundedWeight(head_VD, dtype, rows=padded(self.vocab_size))

    def mean_loss(self, x_ND: Tensor, targets_N: Tensor) -> Tensor:
        """The mean negative log-likelihood in nats, an fp32 scalar; differentiable once."""
        loss: Tensor = _MeanLoss.apply(  # type: ignore[no-untyped-call]
            x_ND, self.weight.parameter, targets_N, self
        )
        return loss

    def exact_nll(self, x_ND: Tensor, targets_N: Tensor) -> Tensor:
        """``nll_N`` in fp64 nats."""
        return torch.cat(
            [
                operations.exact_nll(self.weight.product(x_CD), targets_C, self.vocab_size)
                for x_CD, targets_C in self.chunks(x_ND, targets_N)
            ]
        )

    def chunks(self, x_ND: Tensor, targets_N: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """As many tokens at once as :mod:`trainer.memory.chunks` lets have logits."""
        chunk = chunk_tokens(x_ND.shape[0], self.vocab_size)
        return zip(torch.split(x_ND, chunk), torch.split(targets_N, chunk), strict=True)


def copies_of(weights: Iterable[Weight]) -> Mapping[nn.Parameter, RoundedWeight]:
    """The copies that an update writes along with their parameters."""
    return {
        weight.parameter: weight
        for weight in weights
        if isinstance(weight, RoundedWeight) and weight.storage is not None
    }


# --- what autograd sees -------------------------------------------------------------------------


def norm_linear(
    x_ND: Tensor, delta_ND: Tensor | None, norm: Norm, weight: Weight
) -> tuple[Tensor, Tensor]:
    """``x + delta``, and the product of its norm."""
    both: tuple[Tensor, Tensor] = _NormLinear.apply(  # type: ignore[no-untyped-call]
        x_ND, delta_ND, norm.gain_D, weight.parameter, weight, norm.rms
    )
    return both


def add_norm(x_ND: Tensor, delta_ND: Tensor, norm: Norm) -> Tensor:
    """The norm of ``x + delta``."""
    y_ND: Tensor = _AddNorm.apply(  # type: ignore[no-untyped-call]
        x_ND, delta_ND, norm.gain_D, norm.rms
    )
    return y_ND


def normed(x_ND: Tensor, norm: Norm) -> Tensor:
    """The norm of ``x``."""
    y_ND: Tensor = _Norm.apply(x_ND, norm.gain_D, norm.rms)  # type: ignore[no-untyped-call]
    return y_ND


def linear(x_NI: Tensor, weight: Weight) -> Tensor:
    """The product."""
    y_NO: Tensor = _Linear.apply(x_NI, weight.parameter, weight)  # type: ignore[no-untyped-call]
    return y_NO


def activation_linear(up: Tensor, weight: Weight, activation: Activation) -> Tensor:
    """The product of the activation of ``up``."""
    y_ND: Tensor = _ActivationLinear.apply(  # type: ignore[no-untyped-call]
        up, weight.parameter, weight, activation
    )
    return y_ND


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        delta_ND: Tensor | None,
        gain_D: Tensor,
        parameter: Tensor,
        weight: Weight,
        rms: bool,
    ) -> tuple[Tensor, Tensor]:
        if delta_ND is None:
            sum_ND, normed_ND = x_ND, operations.norm(x_ND, gain_D, rms)
        else:
            sum_ND, normed_ND = operations.add_norm(x_ND, delta_ND, gain_D, rms)
        ctx.save_for_backward(sum_ND, gain_D)
        ctx.weight, ctx.rms, ctx.added = weight, rms, delta_ND is not None
        return sum_ND, weight.product(normed_ND)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, residual_ND: Tensor, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        sum_ND, gain_D = ctx.saved_tensors
        weight: Weight = ctx.weight
        incoming = weight.incoming(gradient_NO.contiguous())
        normed_ND = operations.norm(sum_ND, gain_D, ctx.rms)
        into_parameter = weight.into_weight(incoming, normed_ND)
        del normed_ND
        into_x_ND, into_gain_D = operations.norm_backward(
            weight.into_input(incoming), sum_ND, gain_D, residual_ND.contiguous(), ctx.rms
        )
        into_delta_ND = into_x_ND if ctx.added else None
        return into_x_ND, into_delta_ND, into_gain_D, into_parameter, None, None


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, delta_ND: Tensor, gain_D: Tensor, rms: bool) -> Tensor:
        sum_ND, normed_ND = operations.add_norm(x_ND, delta_ND, gain_D, rms)
        ctx.save_for_backward(sum_ND, gain_D)
        ctx.rms = rms
        return normed_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:
        sum_ND, gain_D = ctx.saved_tensors
        into_x_ND, into_gain_D = operations.norm_backward(
            gradient_ND.contiguous(), sum_ND, gain_D, None, ctx.rms
        )
        return into_x_ND, into_x_ND, into_gain_D, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, gain_D: Tensor, rms: bool) -> Tensor:
        ctx.save_for_backward(x_ND, gain_D)
        ctx.rms = rms
        return operations.norm(x_ND, gain_D, rms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:
        x_ND, gain_D = ctx.saved_tensors
        into_x_ND, into_gain_D = operations.norm_backward(
            gradient_ND.contiguous(), x_ND, gain_D, None, ctx.rms
        )
        return into_x_ND, into_gain_D, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, parameter: Tensor, weight: Weight) -> Tensor:
        ctx.save_for_backward(x_NI)
        ctx.weight = weight
        return weight.product(x_NI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        (x_NI,) = ctx.saved_tensors
        incoming = ctx.weight.incoming(gradient_NO.contiguous())
        return ctx.weight.into_input(incoming), ctx.weight.into_weight(incoming, x_NI), None


class _ActivationLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, up: Tensor, parameter: Tensor, weight: Weight, activation: Activation
    ) -> Tensor:
        ctx.save_for_backward(up)
        ctx.weight, ctx.activation = weight, activation
        return weight.product(operations.activate(up, activation))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:
        (up,) = ctx.saved_tensors
        weight: Weight = ctx.weight
        incoming = weight.incoming(gradient_ND.contiguous())
        into_up, hidden_NF = operations.activate_backward(
            weight.into_input(incoming), up, ctx.activation
        )
        return into_up, weight.into_weight(incoming, hidden_NF), None, None


class _MeanLoss(torch.autograd.Function):
    """As in :mod:`trainer.backends.linear_cross_entropy`: the gradients are made in the forward
    pass, while a chunk's logits are there, and given away in the backward pass."""

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
            del logits_CW  # before the next are made
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
