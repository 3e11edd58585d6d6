"""Compute the values that each rule gives a recipe at another size and length."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoresearch.errors import TargetError
from funnel.target.shape import Architecture, ParameterCount
from funnel.transfer.batch import BatchRule, batch_factor, tokens_a_step
from funnel.transfer.depth import DepthRule, depth_factor
from funnel.transfer.horizon import HorizonRule, horizon_factor
from funnel.transfer.warmup import WarmupRule, warmup_steps
from funnel.transfer.weight_decay import DecayRule, carried_timescale, timescale
from funnel.transfer.width import COVER_DEPTH, WidthRule, width_factor
from trainer.spec import Config

NEAR = 0.1
"""Relative difference below which a batch counts as the batch of a rule."""


@dataclass(frozen=True, slots=True)
class Leap:
    """A recipe of a small, short run, and the run that it is carried to."""

    source: Config
    horizon_steps: int
    """Steps over which the source's rate decays."""
    shape: Architecture
    """Shape of the run's model."""
    tokens: int
    """Tokens of the run."""
    batch_size: int
    """Sequences per step of the run."""

    def __post_init__(self) -> None:
        """:raises TargetError: if the source's warm-up fills its whole schedule."""
        if self.source.lr_warmup >= self.horizon_steps:
            raise TargetError(
                f"a warm-up of {self.source.lr_warmup} steps in a schedule of {self.horizon_steps}"
                " cannot be carried as a fraction; give the horizon that the proxy was trained with"
            )

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.shape.seq_len

    def is_near(self, rule: BatchRule) -> bool:
        """Return whether the batch is the rule's, up to rounding to sequences and GPUs."""
        own = tokens_a_step(rule, kept=self.source.tokens_per_step, tokens=self.tokens)
        return abs(self.tokens_per_step / own - 1) < NEAR

    @property
    def steps(self) -> int:
        return -(-self.tokens // self.tokens_per_step)

    @property
    def source_tokens(self) -> int:
        return self.horizon_steps * self.source.tokens_per_step

    @property
    def source_params(self) -> int:
        """The source's parameters without embeddings."""
        return ParameterCount.of(self.source, 1).blocks

    @property
    def params(self) -> int:
        """The run's parameters without embeddings."""
        return ParameterCount.of(self.shape, 1).blocks

    @property
    def base_width(self) -> int:
        """Width at which the source's tables and blocks have the same rate."""
        return self.source.mup_base_width or self.source.d_model

    @property
    def source_block_lr(self) -> float:
        """The source's rate of the matrices in the blocks."""
        return self.source.lr * self.base_width / self.source.d_model

    @property
    def warmup_fraction(self) -> float:
        return self.source.lr_warmup / self.horizon_steps

    def everywhere(self, horizon: HorizonRule) -> float:
        """Return the factor of every rate, from the tokens and the batch."""
        return horizon_factor(
            horizon, tokens_ratio=self.tokens / self.source_tokens
        ) * batch_factor(self.tokens_per_step, self.source.tokens_per_step)

    def width(self, rule: WidthRule) -> float:
        return width_factor(
            rule,
            d_base=self.source.d_model,
            d_model=self.shape.d_model,
            size_ratio=self.params / self.source_params,
        )

    def depth(self, rule: DepthRule, width: WidthRule) -> float:
        if width in COVER_DEPTH:
            return 1.0
        return depth_factor(rule, base=self.source.n_layer, n_layer=self.shape.n_layer)

    def block_lr(self, width: WidthRule, depth: DepthRule, horizon: HorizonRule) -> float:
        """Return the run's rate of the matrices in the blocks."""
        factor = self.width(width) * self.depth(depth, width) * self.everywhere(horizon)
        return self.source_block_lr * factor

    def base_lr(self, width: WidthRule, depth: DepthRule, horizon: HorizonRule) -> float:
        """Return the rate at :attr:`base_width`, for a launcher that scales by the width itself."""
        if width != "mup":
            return self.block_lr(width, depth, horizon)
        # Tables have the depth's factor too: no launcher can apply it to the blocks alone.
        return self.source.lr * self.depth(depth, width) * self.everywhere(horizon)

    @property
    def source_timescale(self) -> float:
        """AdamW's time scale of the source, as a share of its run."""
        return timescale(self.source_block_lr, self.source.weight_decay, self.horizon_steps)

    def weight_decay(self, rule: DecayRule, block_lr: float) -> float:
        if rule == "kept":
            return self.source.weight_decay
        tau = carried_timescale(
            rule,
            base=self.source_timescale,
            tpp_base=self.source_tokens / self.source_params,
            tpp=self.tokens / self.params,
        )
        return 0.0 if math.isinf(tau) else 1 / (block_lr * tau * self.steps)

    def warmup(self, rule: WarmupRule) -> int:
        return warmup_steps(
            rule, fraction=self.warmup_fraction, steps=self.steps, beta2=self.source.beta2
        )
