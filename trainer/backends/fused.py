"""The transformer's blocks on :mod:`trainer.backends.kernels`: a step on a GPU.

They compute the same functions as :class:`trainer.backends.blocks.Block`, divided so as to move
less memory. For its backward pass a block keeps the residual stream at both norms, queries, keys,
values, attention's output and the activation's input. That is ten model widths per token at
F = 4 D, while autograd over torch's operators keeps sixteen. Kernels that read kept tensors anyway
recompute the outputs of norms and activations. Each autograd function joins a product and the
operation before it, and keeps the minimum for its backward pass.

The residual stream consists of two tensors: ``x``, and a delta that the next norm's kernel adds.

For shapes see :mod:`trainer.backends.torch_gpt`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trainer.backends.blocks import Block, Heads, Norm, Rotary
from trainer.backends.kernels import operations
from trainer.backends.weights import RoundedWeight
from trainer.schema import Activation


class FusedBlock:
    """A block on kernels, which uses the parameters of a :class:`Block`."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self._block = block
        parameters = block.qkv_RD, block.out_DD, block.up_FD, block.down_DF
        self.weights = tuple(RoundedWeight(parameter, dtype) for parameter in parameters)
        self.qkv, self.out, self.up, self.down = self.weights

    def __call__(
        self, x_ND: Tensor, delta_ND: Tensor | None, batch: int, rotary: Rotary | None
    ) -> tuple[Tensor, Tensor]:
        """Run the block on ``x`` and ``delta``, whose sum is its input; return the same pair."""
        block = self._block
        x_ND, qkv_NR = _entering(x_ND, delta_ND, block.attention_norm, self.qkv)
        heads = heads_of(block, qkv_NR, batch, rotary)
        attended_ND = linear(block.attend(heads), self.out)
        attended_ND = self._branch(attended_ND, block.attention_output_norm)
        x_ND, up = _entering(x_ND, attended_ND, block.feed_forward_norm, self.up)
        fed_ND = activation_linear(up, self.down, block.activation)
        return x_ND, self._branch(fed_ND, block.feed_forward_output_norm)

    def _branch(self, y_ND: Tensor, output_norm: Norm | nn.Identity) -> Tensor:
        """Return what half a block adds to the residual stream."""
        if isinstance(output_norm, Norm):
            y_ND = normed(y_ND, None, output_norm)
        scale = self._block.branch_scale
        return y_ND if scale == 1.0 else y_ND * scale


def _entering(
    x_ND: Tensor, delta_ND: Tensor | None, norm: Norm | nn.Identity, weight: RoundedWeight
) -> tuple[Tensor, Tensor]:
    """Return ``x + delta``, and the product of its norm, or of itself if there is no norm."""
    if isinstance(norm, Norm):
        return norm_linear(x_ND, delta_ND, norm, weight)
    if delta_ND is not None:
        x_ND = x_ND + delta_ND
    return x_ND, linear(x_ND, weight)


def norm_linear(
    x_ND: Tensor, delta_ND: Tensor | None, norm: Norm, weight: RoundedWeight
) -> tuple[Tensor, Tensor]:
    """Return ``x + delta``, and the product of its norm."""
    both: tuple[Tensor, Tensor] = _NormLinear.apply(  # type: ignore[no-untyped-call]
        x_ND, delta_ND, norm.gain_D, weight.parameter, weight, norm.rms
    )
    return both


def normed(x_ND: Tensor, delta_ND: Tensor | None, norm: Norm) -> Tensor:
    """Return the norm of ``x + delta``."""
    y_ND: Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
        x_ND, delta_ND, norm.gain_D, norm.rms
    )
    return y_ND


def heads_of(block: Block, qkv_NR: Tensor, batch: int, rotary: Rotary | None) -> Heads:
    """Return :meth:`Block.heads`, with a norm and a rotation in one kernel each way."""
    if rotary is None and block.query_gain_K is None:
        return block.heads(qkv_NR, batch, None)
    length = len(qkv_NR) // batch
    turn_TK = None if rotary is None else rotary.get_buffer("turn_TK")[:length]
    gains = block.query_gain_K, block.key_gain_K
    heads: Heads = _Heads.apply(  # type: ignore[no-untyped-call]
        qkv_NR, *gains, turn_TK, block.n_head, block.n_kv_head
    )
    q_NHK, k_NGK, v_NGK = heads
    shape = (batch, length, -1, block.head_dim)
    return q_NHK.view(shape), k_NGK.view(shape), v_NGK.view(shape)


def linear(x_NI: Tensor, weight: RoundedWeight) -> Tensor:
    """Return the product of ``x`` and the weight's transpose."""
    y_NO: Tensor = _Linear.apply(x_NI, weight.parameter, weight)  # type: ignore[no-untyped-call]
    return y_NO


def activation_linear(up: Tensor, weight: RoundedWeight, activation: Activation) -> Tensor:
    """Return the product of the activation of ``up`` and the weight's transpose."""
    y_ND: Tensor = _ActivationLinear.apply(  # type: ignore[no-untyped-call]
        up, weight.parameter, weight, activation
    )
    return y_ND


def _sum_and_norm(
    x_ND: Tensor, delta_ND: Tensor | None, gain_D: Tensor, rms: bool
) -> tuple[Tensor, Tensor]:
    """Return ``x + delta`` and its norm."""
    if delta_ND is None:
        return x_ND, operations.norm(x_ND, gain_D, rms)
    return operations.add_norm(x_ND, delta_ND, gain_D, rms)


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        delta_ND: Tensor | None,
        gain_D: Tensor,
        parameter: Tensor,
        weight: RoundedWeight,
        rms: bool,
    ) -> tuple[Tensor, Tensor]:
        sum_ND, normed_ND = _sum_and_norm(x_ND, delta_ND, gain_D, rms)
        ctx.save_for_backward(sum_ND, gain_D)
        ctx.weight, ctx.rms, ctx.added = weight, rms, delta_ND is not None
        return sum_ND, weight.product(normed_ND)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, residual_ND: Tensor, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        sum_ND, gain_D = ctx.saved_tensors
        weight: RoundedWeight = ctx.weight
        gradient_NO = gradient_NO.contiguous()
        into_x_ND, into_gain_D, normed_ND = operations.norm_backward(
            weight.into_input(gradient_NO),
            *(sum_ND, gain_D, residual_ND.contiguous(), ctx.rms),
            again=True,
        )
        assert normed_ND is not None
        into_parameter = weight.into_weight(gradient_NO, normed_ND)
        into_delta_ND = into_x_ND if ctx.added else None
        return into_x_ND, into_delta_ND, into_gain_D, into_parameter, None, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, delta_ND: Tensor | None, gain_D: Tensor, rms: bool
    ) -> Tensor:
        sum_ND, normed_ND = _sum_and_norm(x_ND, delta_ND, gain_D, rms)
        ctx.save_for_backward(sum_ND, gain_D)
        ctx.rms, ctx.added = rms, delta_ND is not None
        return normed_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:
        sum_ND, gain_D = ctx.saved_tensors
        into_x_ND, into_gain_D, _ = operations.norm_backward(
            gradient_ND.contiguous(), sum_ND, gain_D, None, ctx.rms
        )
        return into_x_ND, into_x_ND if ctx.added else None, into_gain_D, None


class _Heads(torch.autograd.Function):
    """Queries and keys, normed or rotated or both, and the values, which are a view."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv_NR: Tensor,
        query_gain_K: Tensor | None,
        key_gain_K: Tensor | None,
        turn_TK: Tensor | None,
        n_head: int,
        n_kv_head: int,
    ) -> Heads:
        ctx.save_for_backward(qkv_NR, query_gain_K, key_gain_K, turn_TK)
        q_NHK, k_NGK = operations.heads(
            qkv_NR, query_gain_K, key_gain_K, turn_TK, n_head, n_kv_head
        )
        v_NGK = qkv_NR.view(len(qkv_NR), n_head + 2 * n_kv_head, -1)[:, -n_kv_head:]
        return q_NHK, k_NGK, v_NGK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        contiguous = (gradient.contiguous() for gradient in gradients)
        return *operations.heads_backward(*contiguous, *ctx.saved_tensors), None, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, parameter: Tensor, weight: RoundedWeight) -> Tensor:
        ctx.save_for_backward(x_NI)
        ctx.weight = weight
        return weight.product(x_NI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        (x_NI,) = ctx.saved_tensors
        gradient_NO = gradient_NO.contiguous()
        return ctx.weight.into_input(gradient_NO), ctx.weight.into_weight(gradient_NO, x_NI), None


class _ActivationLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, up: Tensor, parameter: Tensor, weight: RoundedWeight, activation: Activation
    ) -> Tensor:
        ctx.save_for_backward(up)
        ctx.weight, ctx.activation = weight, activation
        return weight.product(operations.activate(up, activation))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:
        (up,) = ctx.saved_tensors
        weight: RoundedWeight = ctx.weight
        gradient_ND = gradient_ND.contiguous()
        into_up, hidden_NF = operations.activate_backward(
            weight.into_input(gradient_ND), up, ctx.activation
        )
        return into_up, weight.into_weight(gradient_ND, hidden_NF), None, None
