"""The reference backend: a GPT in plain PyTorch, the same code on CPU and CUDA.

Pre-norm blocks, causal attention, no biases, no dropout. In bf16 the matrix products and the
residual stream are bf16 (as in Megatron-Core); master weights, the embedding sum and the loss are
fp32.

Shapes: B sequences, T tokens, H heads, K = D / H (head_dim), D = d_model, F = d_ff, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.errors import SpecError
from trainer.spec import Config

INIT_STD = 0.02
"""Of every matrix at the start (GPT-2), but for the two corrections in :meth:`TorchGPT.init`."""
MAX_LOGIT_STD = 0.5
"""The first loss exceeds ln(V) by half the logits' variance: 0.125 nats at this bound."""
MAX_TIED_LOGIT_STD = 0.18
"""A tied head also favours the token it has just read, by a logit that grows with the width; text
repeats itself, and at GPT-2's 0.02 the first loss came out up to 8 % below ln(V)."""
NORM_EPS = 1e-5
ROTARY_BASE = 10_000.0

SHORT_SEQUENCE = 512
"""Up to this many tokens :func:`_attend_short_bf16` beats the fused kernel on CPU."""


class TorchBackend:
    """Builds :class:`TorchGPT`."""

    name = "torch"

    def check(self, config: Config, device: torch.device) -> None:
        """Refuse fp8, which plain PyTorch does not train in."""
        if config.precision == "fp8":
            raise SpecError(
                f"precision fp8 needs the megatron backend on a GPU, not torch on {device};"
                " choose bf16 or fp32"
            )

    def build(self, config: Config, vocab_size: int, device: torch.device) -> TorchGPT:
        """See :class:`trainer.backends.base.Backend`."""
        model = TorchGPT(config, vocab_size, device)
        model.init()
        return model


class TorchGPT(nn.Module):
    """A decoder-only transformer; weights are undefined until :meth:`init`."""

    def __init__(self, config: Config, vocab_size: int, device: torch.device) -> None:
        super().__init__()
        self.config = config
        self._autocast = config.precision == "bf16"
        self._device_type: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
        width = config.d_model
        self.embedding_VD = _empty(vocab_size, width, device=device)
        self.position_TD: nn.Parameter | None = None
        self.rotary: Rotary | None = None
        if config.positions == "learned":
            self.position_TD = _empty(config.seq_len, width, device=device)
        else:
            self.rotary = Rotary(config.seq_len, width // config.n_head, device)
        self.blocks = nn.ModuleList(Block(config, device) for _ in range(config.n_layer))
        self.norm = Norm(config, device)
        self.head_VD = (
            self.embedding_VD if config.tie_embeddings else _empty(vocab_size, width, device=device)
        )

    @torch.no_grad()
    def init(self) -> None:
        """Draw the weights so that the first loss is near ln(V).

        Normal with sd 0.02; what writes to the residual stream is smaller by sqrt(2 × n_layer), so
        that its variance does not grow with depth (Radford et al. 2019); embeddings and head are
        smaller where the logits would otherwise start with a larger sd than the bounds above.
        """
        tied = self.config.tie_embeddings
        max_logit_std = MAX_TIED_LOGIT_STD if tied else MAX_LOGIT_STD
        table_std = min(INIT_STD, max_logit_std / math.sqrt(self.config.d_model))
        residual_std = INIT_STD / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            elif name in {"embedding_VD", "position_TD", "head_VD"}:
                parameter.normal_(0.0, table_std)
            else:
                to_residual = name.endswith(("out_DD", "down_DF"))
                parameter.normal_(0.0, residual_std if to_residual else INIT_STD)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """``nll_BT`` in nats: fp32 in training, fp64 from the logits on in evaluation."""
        logits_NV = self.logits(tokens_BT).flatten(0, 1)
        if not self.training:
            logits_NV = logits_NV.double()
        nll_N = functional.cross_entropy(logits_NV, targets_BT.flatten(), reduction="none")
        return nll_N.view_as(targets_BT)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """``logits_BTV``, fp32."""
        batch, length = tokens_BT.shape
        x_BTD = functional.embedding(tokens_BT, self.embedding_VD)
        if self.position_TD is not None:
            x_BTD = x_BTD + self.position_TD[:length]
        with torch.autocast(self._device_type, torch.bfloat16, enabled=self._autocast):
            # One row a token: a matrix product of two dimensions dispatches without reshaping.
            x_ND = x_BTD.to(torch.bfloat16 if self._autocast else torch.float32).flatten(0, 1)
            for block in self.blocks:
                x_ND = block(x_ND, batch, self.rotary)
            logits_NV = functional.linear(self.norm(x_ND), self.head_VD)
        return logits_NV.float().view(batch, length, -1)


class Block(nn.Module):
    """Attention, then a feed-forward block, each added to the residual stream."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.swiglu = config.activation == "swiglu"
        width, hidden = config.d_model, config.d_ff
        self.attention_norm = Norm(config, device)
        self.qkv_3DD = _empty(3 * width, width, device=device)
        self.out_DD = _empty(width, width, device=device)
        self.feed_forward_norm = Norm(config, device)
        # For SwiGLU the gate's rows come first, then the linear branch's.
        self.up_FD = _empty(2 * hidden if self.swiglu else hidden, width, device=device)
        self.down_DF = _empty(width, hidden, device=device)

    def forward(self, x_ND: Tensor, batch: int, rotary: Rotary | None) -> Tensor:
        """``x_ND`` of ``batch`` sequences laid end to end, to the same shape."""
        x_ND = x_ND + self._attend(self.attention_norm(x_ND), batch, rotary)
        return x_ND + self._feed_forward(self.feed_forward_norm(x_ND))

    def _attend(self, x_ND: Tensor, batch: int, rotary: Rotary | None) -> Tensor:
        qkv_N3D = functional.linear(x_ND, self.qkv_3DD)
        qkv_BT3HK = qkv_N3D.view(batch, -1, 3, self.n_head, x_ND.shape[1] // self.n_head)
        q_BHTK, k_BHTK, v_BHTK = qkv_BT3HK.permute(2, 0, 3, 1, 4).unbind(0)
        if rotary is not None:
            q_BHTK, k_BHTK = rotary(q_BHTK), rotary(k_BHTK)
        y_BHTK = attend(q_BHTK, k_BHTK, v_BHTK)
        return functional.linear(y_BHTK.transpose(1, 2).reshape(x_ND.shape), self.out_DD)

    def _feed_forward(self, x_ND: Tensor) -> Tensor:
        up = functional.linear(x_ND, self.up_FD)
        if self.swiglu:
            gate_NF, linear_NF = up.chunk(2, dim=-1)
            hidden_NF = functional.silu(gate_NF) * linear_NF
        else:
            hidden_NF = functional.gelu(up)
        return functional.linear(hidden_NF, self.down_DF)


class Norm(nn.Module):
    """LayerNorm without bias, or RMSNorm."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__()
        self.rms = config.norm == "rmsnorm"
        self.gain_D = _empty(config.d_model, device=device)

    def forward(self, x_ND: Tensor) -> Tensor:
        """``x_ND`` with rows of unit scale, times the gain."""
        shape = self.gain_D.shape
        if self.rms:
            # The fused kernel wants one dtype; with two it warns and falls back to many kernels.
            return functional.rms_norm(x_ND, shape, self.gain_D.to(x_ND.dtype), NORM_EPS)
        return functional.layer_norm(x_ND, shape, self.gain_D, None, NORM_EPS)


class Rotary(nn.Module):
    """Rotary positions: pairs (i, i + K/2) turn by position × base^(-2i/K) (Su et al. 2021)."""

    def __init__(self, seq_len: int, head_dim: int, device: torch.device) -> None:
        super().__init__()
        exponent_P = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
        position_T = torch.arange(seq_len, device=device, dtype=torch.float32)
        angle_TP = torch.outer(position_T, ROTARY_BASE**-exponent_P)
        self.register_buffer("cos_TK", angle_TP.cos().repeat(1, 2), persistent=False)
        sin_TP = angle_TP.sin()
        self.register_buffer("sin_TK", torch.cat((-sin_TP, sin_TP), 1), persistent=False)

    def forward(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys, turned; same shape and dtype."""
        length, head_dim = x_BHTK.shape[-2:]
        cos_TK, sin_TK = self.get_buffer("cos_TK")[:length], self.get_buffer("sin_TK")[:length]
        return (x_BHTK * cos_TK + x_BHTK.roll(head_dim // 2, -1) * sin_TK).to(x_BHTK.dtype)


def attend(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Causal softmax attention, ``y_BHTK`` in the dtype of its inputs.

    On CPU the fused kernel's bf16 backward pass takes three to four times as long as its fp32 one
    (6.3 against 1.4 ms for 8 × 4 heads of 128 × 32), so there bf16 goes two other ways.
    """
    if q_BHTK.device.type == "cpu" and q_BHTK.dtype is torch.bfloat16:
        with torch.autocast("cpu", enabled=False):
            if q_BHTK.shape[2] <= SHORT_SEQUENCE:
                return _attend_short_bf16(q_BHTK, k_BHTK, v_BHTK)
            y_BHTK = functional.scaled_dot_product_attention(
                q_BHTK.float(), k_BHTK.float(), v_BHTK.float(), is_causal=True
            )
            return y_BHTK.to(torch.bfloat16)
    return functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)


def _attend_short_bf16(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Attention as its two matrix products, which on CPU run on bf16 tiles (AMX)."""
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


def _empty(*shape: int, device: torch.device) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device=device))
