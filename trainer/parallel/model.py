"""Implement the GPT of :mod:`trainer.backends.torch_gpt` in modules that torch's parallel tools
support.

Those tools distribute ``nn.Linear`` and cut between modules, while the reference backend keeps raw
parameters and fuses what it can. The function is the same; a test compares the two with one set of
weights.

Shapes: B sequences, T tokens, H heads, K = D / H (head_dim), D = d_model, F = d_ff, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.backends.blocks import Rotary, activate
from trainer.backends.kernels import NORM_EPS
from trainer.backends.torch_gpt import INIT_STD
from trainer.spec import Config


class ParallelGPT(nn.Module):
    """A whole model, or after :meth:`keep_stage` the layers of one pipeline stage."""

    def __init__(self, config: Config, vocab_size: int) -> None:
        super().__init__()
        width = config.d_model
        self.config = config
        self.embedding: nn.Embedding | None = nn.Embedding(vocab_size, width)
        self.positions: nn.Embedding | None = (
            nn.Embedding(config.seq_len, width) if config.positions == "learned" else None
        )
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm: nn.Module | None = _norm(config)
        self.head: nn.Linear | None = nn.Linear(width, vocab_size, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight

    @torch.no_grad()
    def init(self, generator: torch.Generator) -> None:
        """Initialize normally with sd 0.02, less for matrices that write to the residual stream;
        like the reference backend without its correction of the first loss."""
        config = self.config
        block_std = INIT_STD * config.init_scale * math.sqrt(config.width_factor)
        residual_std = block_std / math.sqrt(2 * (config.mup_base_depth or config.n_layer))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                to_residual = name.endswith(("out.weight", "down.weight"))
                std = residual_std if to_residual else block_std
                if not name.startswith("blocks."):
                    std = INIT_STD
                parameter.normal_(0.0, std, generator=generator)

    def keep_stage(self, stage: int, stages: int) -> None:
        """Drop everything but one stage's share of the layers.

        A tied head on another stage than its embedding becomes a copy of it, and the two stages
        must add up its gradient.
        """
        share = len(self.blocks) // stages
        self.blocks = nn.ModuleList(list(self.blocks)[stage * share : (stage + 1) * share])
        if stage < stages - 1:
            self.norm = self.head = None
        elif self.head is not None and self.config.tie_embeddings and stage > 0:
            self.head.weight = nn.Parameter(self.head.weight.detach().clone())
        if stage > 0:
            self.embedding = self.positions = None

    def forward(self, x: Tensor) -> Tensor:
        """``tokens_BT`` (first stage) or ``x_BTD`` to ``logits_BTV`` (last stage) or ``x_BTD``."""
        if self.embedding is not None:
            tokens_BT, x = x, self.embedding(x)
            if self.positions is not None:
                x = x + self.positions.weight[: tokens_BT.shape[1]]
        for block in self.blocks:
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x) * self.config.width_factor)
        return x


class Block(nn.Module):
    """Attention, then a feed-forward block, each added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, hidden = config.d_model, config.d_ff
        self.head_dim = width // config.n_head
        self.rotary = (
            Rotary(config.seq_len, self.head_dim, torch.device("cpu"), config.rope_base)
            if config.positions == "rotary"
            else None
        )
        keys_width = config.kv_heads * self.head_dim
        at_input, at_output = config.norm_place != "output", config.norm_place != "pre"
        self.activation, self.branch_scale = config.activation, config.depth_factor
        self.attention_norm = _norm(config) if at_input else nn.Identity()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, keys_width, bias=False)
        self.value = nn.Linear(width, keys_width, bias=False)
        self.query_norm = nn.RMSNorm(self.head_dim, NORM_EPS) if config.qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(self.head_dim, NORM_EPS) if config.qk_norm else nn.Identity()
        self.out = nn.Linear(width, width, bias=False)
        self.attention_output_norm = _norm(config) if at_output else nn.Identity()
        self.feed_forward_norm = _norm(config) if at_input else nn.Identity()
        self.gate = nn.Linear(width, hidden, bias=False) if config.gated else None
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.feed_forward_output_norm = _norm(config) if at_output else nn.Identity()

    def forward(self, x_BTD: Tensor) -> Tensor:
        attended_BTD = self._attend(self.attention_norm(x_BTD))
        x_BTD = x_BTD + self.branch_scale * self.attention_output_norm(attended_BTD)
        fed_BTD = self._feed_forward(self.feed_forward_norm(x_BTD))
        added: Tensor = self.branch_scale * self.feed_forward_output_norm(fed_BTD)
        return x_BTD + added

    def _attend(self, x_BTD: Tensor) -> Tensor:
        q_BHTK, k_BHTK, v_BHTK = (
            linear(x_BTD).view(*x_BTD.shape[:2], -1, self.head_dim).transpose(1, 2)
            for linear in (self.query, self.key, self.value)  # this rank's heads
        )
        q_BHTK, k_BHTK = self.query_norm(q_BHTK), self.key_norm(k_BHTK)
        if self.rotary is not None:
            q_BHTK, k_BHTK = self.rotary(q_BHTK), self.rotary(k_BHTK)
        y_BHTK = functional.scaled_dot_product_attention(
            q_BHTK, k_BHTK, v_BHTK, is_causal=True, enable_gqa=q_BHTK.shape[1] != k_BHTK.shape[1]
        )
        out: Tensor = self.out(y_BHTK.transpose(1, 2).flatten(2))
        return out

    def _feed_forward(self, x_BTD: Tensor) -> Tensor:
        up_BTF = self.up(x_BTD)
        if self.gate is None:
            hidden_BTF = activate(up_BTF, self.activation)
        else:
            gate = functional.silu if self.activation == "swiglu" else functional.gelu
            hidden_BTF = gate(self.gate(x_BTD)) * up_BTF
        down: Tensor = self.down(hidden_BTF)
        return down


def loss_of(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Return the mean loss over the tokens, in nats."""
    return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def _norm(config: Config) -> nn.Module:
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.d_model, NORM_EPS)
    return nn.LayerNorm(config.d_model, NORM_EPS, bias=False)
