"""The parts of a transformer in plain PyTorch: block, attention, normalization, rotary positions.

Attention is causal, by the fastest method for the device and the dtype. For shapes see
:mod:`trainer.backends.torch_gpt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from trainer.backends.coded import CodeFunction, code_function
from trainer.backends.kernels import NORM_EPS
from trainer.backends.kernels.operations import activated, rotated
from trainer.backends.muon import Piece
from trainer.backends.products import cpu_multiplies_bf16, linear
from trainer.schema import Config

SHORT_SEQUENCE = 512
"""Up to this many tokens :func:`_attend_short_bf16` beats the fused kernel on CPU."""


def attend(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor) -> Tensor:
    """Return causal softmax attention, ``y_BHTK`` in the inputs' dtype; H is a multiple of G.

    On CUDA scaled_dot_product_attention chooses the kernel. In bf16 that is FlashAttention, since
    trials turn cuDNN's kernel off by default (:attr:`trainer.schema.TrialSpec.cudnn_attention`).
    FlashAttention takes grouped keys and values directly. The fp32 kernels, and all kernels on a
    CPU, do not, so there each key and value is repeated for its queries.

    On CPU the fused kernel's bf16 backward pass takes three to four times as long as its fp32 one
    (6.3 against 1.4 ms for 8 × 4 heads of 128 × 32). So bf16 avoids it there: short sequences run
    as two products if the CPU has bf16 products, all others through the fp32 kernel.
    """
    on_cpu, in_bf16 = q_BHTK.device.type == "cpu", q_BHTK.dtype is torch.bfloat16
    queries_each = q_BHTK.shape[1] // k_BGTK.shape[1]
    grouped = queries_each > 1
    if grouped and (on_cpu or not in_bf16):
        k_BGTK = k_BGTK.repeat_interleave(queries_each, dim=1)
        v_BGTK = v_BGTK.repeat_interleave(queries_each, dim=1)
        grouped = False
    if on_cpu and in_bf16:
        if q_BHTK.shape[2] <= SHORT_SEQUENCE and cpu_multiplies_bf16():
            return _attend_short_bf16(q_BHTK, k_BGTK, v_BGTK)
        y_BHTK = functional.scaled_dot_product_attention(
            q_BHTK.float(), k_BGTK.float(), v_BGTK.float(), is_causal=True
        )
        return y_BHTK.to(torch.bfloat16)
    return functional.scaled_dot_product_attention(
        q_BHTK, k_BGTK, v_BGTK, is_causal=True, enable_gqa=grouped
    )


def attend_by_scores(
    q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, change: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return what :func:`attend` does, with every score changed before the mask, in fp32."""
    queries_each = q_BHTK.shape[1] // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (x.repeat_interleave(queries_each, dim=1) for x in (k_BGTK, v_BGTK))
    length, head_dim = q_BHTK.shape[2:]
    scores_BHTT = q_BHTK.float() @ k_BHTK.float().transpose(2, 3) / math.sqrt(head_dim)
    later_TT = torch.ones(length, length, dtype=torch.bool, device=q_BHTK.device).triu(1)
    # Not an addition: a score that is not finite must not show through the mask.
    masked_BHTT = change(scores_BHTT).masked_fill(later_TT, -math.inf)
    return masked_BHTT.softmax(-1).to(v_BHTK.dtype) @ v_BHTK


def _attend_short_bf16(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Compute attention as its two matrix products, which on CPU run on bf16 tiles (AMX)."""
    length, head_dim = q_BHTK.shape[2:]
    mask_TT = q_BHTK.new_full((length, length), -math.inf).triu_(1)
    scores = torch.baddbmm(
        mask_TT,
        q_BHTK.reshape(-1, length, head_dim),
        k_BHTK.reshape(-1, length, head_dim).transpose(1, 2),
        alpha=1.0 / math.sqrt(head_dim),
    )
    weights = scores.softmax(-1)
    return torch.bmm(weights, v_BHTK.reshape(-1, length, head_dim)).view(q_BHTK.shape)


Product: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""``(x_NI, weight_OI) -> y_NO``, in the dtype of ``x``; the weight is fp32."""

Heads: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""``q_BTHK``, ``k_BTGK`` and ``v_BTGK``: what attention takes, before it is transposed."""


class Block(nn.Module):
    """Attention, then a feed-forward block, each added to the residual stream."""

    def __init__(self, config: Config, device: torch.device, layer: int = 0) -> None:
        super().__init__()
        self.n_head, self.n_kv_head = config.n_head, config.kv_heads
        self.head_dim = config.d_model // config.n_head
        self.activation, self.gated = config.activation, config.gated
        self.branch_scale = config.depth_factor
        width, hidden = config.d_model, config.d_ff
        at_input, at_output = config.norm_place != "output", config.norm_place != "pre"
        self.attention_norm = Norm(config, device) if at_input else nn.Identity()
        # The rows of the queries' heads come first, then those of the keys and of the values.
        heads = self.n_head + 2 * self.n_kv_head
        self.qkv_RD = empty(heads * self.head_dim, width, device=device)
        self.query_gain_K = empty(self.head_dim, device=device) if config.qk_norm else None
        self.key_gain_K = empty(self.head_dim, device=device) if config.qk_norm else None
        self.out_DD = empty(width, width, device=device)
        self.attention_output_norm = Norm(config, device) if at_output else nn.Identity()
        self.feed_forward_norm = Norm(config, device) if at_input else nn.Identity()
        # With a gated activation the gate's rows come first, then the linear branch's.
        self.up_FD = empty(2 * hidden if self.gated else hidden, width, device=device)
        self.down_DF = empty(width, hidden, device=device)
        self.feed_forward_output_norm = Norm(config, device) if at_output else nn.Identity()
        # Functions of a config's own; each is None unless the config has one for that slot.
        self.layer, self.n_layer = layer, config.n_layer
        inner = "gate" if self.gated else "activation"
        self.activation_code = code_function(inner, config, hidden, device)
        self.attention_residual = code_function("residual", config, width, device)
        self.feed_forward_residual = code_function("residual", config, width, device)
        self.scores_code = code_function("attention_scores", config, 0, device)

    def forward(self, x_ND: Tensor, batch: int, rotary: Rotary | None) -> Tensor:
        """Transform ``x_ND``, ``batch`` sequences end to end, to the same shape."""
        qkv_NR = linear(self.attention_norm(x_ND), self.qkv_RD)
        attended_ND = linear(self.attend(self.heads(qkv_NR, batch, rotary)), self.out_DD)
        x_ND = self._add(x_ND, self.attention_output_norm(attended_ND), self.attention_residual)
        up = linear(self.feed_forward_norm(x_ND), self.up_FD)
        if self.activation_code is None:
            hidden_NF = activated(up, self.activation)
        else:
            hidden_NF = self.activation_code(*(up.chunk(2, dim=-1) if self.gated else (up,)))
        fed_ND = linear(hidden_NF, self.down_DF)
        return self._add(x_ND, self.feed_forward_output_norm(fed_ND), self.feed_forward_residual)

    def muon_pieces(self) -> list[Piece]:
        """Return the matrices, those of queries, keys and values apart."""
        queries, keys = (heads * self.head_dim for heads in (self.n_head, self.n_kv_head))
        pieces = [Piece(self.qkv_RD, 0, queries)]
        pieces += [Piece(self.qkv_RD, queries + first, keys) for first in (0, keys)]
        return pieces + [Piece(p, 0, len(p)) for p in (self.out_DD, self.up_FD, self.down_DF)]

    def _add(self, x_ND: Tensor, branch_ND: Tensor, code: CodeFunction | None) -> Tensor:
        """Add half a block's output to the residual stream."""
        if self.branch_scale != 1.0:
            branch_ND = branch_ND * self.branch_scale
        if code is None:
            return x_ND + branch_ND
        return code(x_ND, branch_ND, self.layer, self.n_layer)  # type: ignore[no-any-return]

    def heads(self, qkv_NR: Tensor, batch: int, rotary: Rotary | None) -> Heads:
        """Split the product of queries, keys and values; norm and rotate the first two."""
        counts = (self.n_head, self.n_kv_head, self.n_kv_head)
        qkv_BTHK = qkv_NR.view(batch, -1, sum(counts), self.head_dim)
        # Split before transposing, so that the backward pass lays their gradients end to end.
        q_BTHK, k_BTGK, v_BTGK = qkv_BTHK.split_with_sizes(counts, 2)
        if self.query_gain_K is not None and self.key_gain_K is not None:
            q_BTHK, k_BTGK = unit(q_BTHK, self.query_gain_K), unit(k_BTGK, self.key_gain_K)
        if rotary is not None:
            q_BTHK, k_BTGK = rotary(q_BTHK), rotary(k_BTGK)
        return q_BTHK, k_BTGK, v_BTGK

    def attend(self, heads: Heads) -> Tensor:
        """Return attention's output, ``[N, D]``, before its projection."""
        q_BHTK, k_BGTK, v_BGTK = (x_BTHK.transpose(1, 2) for x_BTHK in heads)
        if self.scores_code is None:
            y_BHTK = attend(q_BHTK, k_BGTK, v_BGTK)
        else:
            y_BHTK = attend_by_scores(q_BHTK, k_BGTK, v_BGTK, self.scores_code)
        return y_BHTK.transpose(1, 2).flatten(0, 1).flatten(1)


class Norm(nn.Module):
    """LayerNorm without bias, or RMSNorm."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__()
        self.rms = config.norm == "rmsnorm"
        self.gain_D = empty(config.d_model, device=device)
        self.code = code_function("norm", config, config.d_model, device)

    def forward(self, x_ND: Tensor) -> Tensor:
        """Return ``x_ND`` with its rows scaled to 1, times the gain."""
        gain_D: Tensor = self.gain_D
        if self.code is not None:
            return self.code(x_ND, gain_D.to(x_ND.dtype))  # type: ignore[no-any-return]
        if self.rms:
            return unit(x_ND, gain_D)
        if x_ND.is_cuda:
            gain_D = gain_D.to(x_ND.dtype)  # CUDA's kernel refuses two dtypes
        return functional.layer_norm(x_ND, gain_D.shape, gain_D, None, NORM_EPS)


def unit(x: Tensor, gain: Tensor) -> Tensor:
    """Return the RMS norm of rows, times the gain.

    The gain is cast, since with two dtypes torch warns and falls back to several kernels.
    """
    return functional.rms_norm(x, gain.shape, gain.to(x.dtype), NORM_EPS)


class Rotary(nn.Module):
    """Rotary positions: rotate pairs (i, i + K/2) by position × base^(-2i/K) (Su et al. 2021)."""

    def __init__(
        self, seq_len: int, head_dim: int, device: torch.device, base: float = 10_000.0
    ) -> None:
        super().__init__()
        exponent_P = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
        position_T = torch.arange(seq_len, device=device, dtype=torch.float32)
        angle_TP = torch.outer(position_T, base**-exponent_P)
        turn_TK = torch.cat((angle_TP.cos(), angle_TP.sin()), 1)
        self.register_buffer("turn_TK", turn_TK, persistent=False)

    def forward(self, x_BTHK: Tensor) -> Tensor:
        """Rotate queries or keys; the result has the same shape and dtype."""
        y_BTHK: Tensor = _Rotated.apply(  # type: ignore[no-untyped-call]
            x_BTHK, self.get_buffer("turn_TK")
        )
        return y_BTHK


class _Rotated(torch.autograd.Function):
    """A rotation, whose gradient is rotated back, so that it keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x_BTHK: Tensor, turn_TK: Tensor) -> Tensor:
        ctx.turn_TK = turn_TK
        return rotated(x_BTHK, turn_TK)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTHK: Tensor) -> tuple[Tensor, None]:
        return rotated(gradient_BTHK, ctx.turn_TK, -1.0), None


def empty(*shape: int, device: torch.device) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device=device))
