"""Compute the values that each rule gives a recipe at another size and length, and explain each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autoresearch.errors import TargetError
from autoresearch.words import scalar_text
from funnel.target.shape import Architecture, ParameterCount
from funnel.transfer.rates import (
    BATCH_RULES,
    COVER_DEPTH,
    DEPTH_RULES,
    EXPONENTS,
    HORIZON_RULES,
    SMALL,
    STEEP_AT,
    WIDTH_RULES,
    BatchRule,
    DepthRule,
    HorizonRule,
    WidthRule,
    batch_factor,
    critical_batch,
    depth_factor,
    horizon_factor,
    tokens_a_step,
    width_factor,
)
from funnel.transfer.rules import (
    DECAY_RULES,
    FELT,
    DecayRule,
    RuleChoice,
    WarmupRule,
    carried_timescale,
    timescale,
    warmup_steps,
)
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


KEPT = {
    "lr_min_ratio": "as it is: a fraction of the rate",
    "grad_clip": "as it is: a norm over all parameters",
    "beta1": "as it is",
    "beta2": "as it is: published runs of all sizes and batches have 0.95",
    "precision": "as it is: to be proved on the target's own GPU",
    "schedule": "as it is: the form",
    "decay_share": "as it is: a share of the schedule",
}
"""Explanations of the fields that no rule changes."""

MUCH_WIDER = 8.0
"""Ratio of the tables' rate to the blocks' above which a note says that they share a decay."""


def reasons(leap: Leap, rules: RuleChoice, config: Config, *, asked: int | None) -> dict[str, str]:
    """Return the explanation of each field of Config, by name.

    :param asked: tokens per step that the user asked for; None: chosen by the batch's rule.
    """
    warmup = (
        f"2 / (1 - beta2) = {config.lr_warmup} steps of {leap.steps:,} (arXiv 1910.04209)"
        if rules.warmup == "untuned"
        else f"{leap.warmup_fraction:.3%} of the schedule: {leap.source.lr_warmup} of "
        f"{leap.horizon_steps} steps, {config.lr_warmup} of {leap.steps:,}"
    )
    tokens = leap.tokens / leap.source_tokens
    batch = leap.tokens_per_step / leap.source.tokens_per_step
    factors = [
        f"width {scalar_text(leap.width(rules.width))} ({rules.width}: {leap.source.d_model} to "
        f"{leap.shape.d_model})",
        f"depth {scalar_text(leap.depth(rules.depth, rules.width))} ({rules.depth}: "
        f"{leap.source.n_layer} to {leap.shape.n_layer} layers)",
        f"length and batch {scalar_text(leap.everywhere(rules.horizon))} ({rules.horizon}: "
        f"{tokens:.3g} times the tokens; square root of {batch:.3g} times the batch)",
    ]
    rest = (
        "; tables, head and norms have all but the width's part, and the logits are multiplied by "
        f"{leap.base_width} / {leap.shape.d_model}"
        if rules.width == "mup"
        else "; for everything"
    )
    return {
        **dict.fromkeys(Config.model_fields, "the target's architecture"),
        **dict.fromkeys(config.code, "as it is: the function"),
        **KEPT,
        "lr": f"lr × {' × '.join(factors)} for the matrices in the blocks{rest}",
        "lr_warmup": warmup,
        "weight_decay": _decay(leap, rules, config),
        "batch_size": _batch(leap, rules, asked),
        "mup_base_width": _parametrised(rules, "width"),
        "mup_base_depth": _parametrised(rules, "depth"),
    }


def _parametrised(rules: RuleChoice, what: str) -> str:
    if rules.in_config:
        return f"the {what} from which the trainer carries lr itself"
    return f"not in the config: what is made of {what} is in its lr"


def _decay(leap: Leap, rules: RuleChoice, config: Config) -> str:
    if rules.weight_decay == "kept":
        return "as it is"
    block_lr = leap.block_lr(rules.width, rules.depth, rules.horizon)
    own = timescale(block_lr, config.weight_decay, leap.steps)
    small = leap.source_timescale
    wider = _wider(leap, rules)
    papers = DECAY_RULES[rules.weight_decay].paper.rpartition(", ")[2]
    tables = f"; that is the blocks', the tables' {own / wider:.2g}" if wider > 1 else ""
    if rules.weight_decay == "power_lines" and small > FELT:
        return (
            "the proxy's run is too short to show the effect of its decay: AdamW's "
            f"time scale is {own:.3g} of the run by 1.084 TPP^-0.527 ({papers}){tables}"
        )
    return (
        f"AdamW's time scale, {small:.3g} of the proxy's run and {own:.3g} of the target's "
        f"({papers}){tables}"
    )


def _wider(leap: Leap, rules: RuleChoice) -> float:
    """Return the ratio of the tables' rate to the blocks'."""
    return leap.shape.d_model / leap.base_width if rules.width == "mup" else 1.0


def _batch(leap: Leap, rules: RuleChoice, asked: int | None) -> str:
    sizes = f"{leap.tokens_per_step:,} tokens a step in sequences of {leap.shape.seq_len:,}"
    if asked and not leap.is_near(rules.batch):
        return f"{sizes}, as given; the rates and the steps follow"
    if rules.batch == "kept":
        return f"{sizes}: the proxy's {leap.source.tokens_per_step:,} to whole sequences"
    rule = BATCH_RULES[rules.batch]
    return f"{sizes}: {rule.formula} ({rule.paper}); the proxy had {leap.source.tokens_per_step:,}"


def beyond_range(leap: Leap, rules: RuleChoice) -> Iterator[str]:
    """Yield a note for each rule in force that is used outside its tested range."""
    seen_at = {
        "tokens": float(leap.tokens),
        "parameters": float(leap.params),
        "tokens a parameter": leap.tokens / leap.params,
    }
    for rule in (
        WIDTH_RULES[rules.width],
        DEPTH_RULES[rules.depth],
        HORIZON_RULES[rules.horizon],
        BATCH_RULES[rules.batch],
        DECAY_RULES[rules.weight_decay],
    ):
        yield from rule.beyond(**seen_at)
    if rules.horizon != "none" and leap.source_params < SMALL and leap.tokens > leap.source_tokens:
        steeper = (leap.tokens / leap.source_tokens) ** (STEEP_AT[5.0e7] - EXPONENTS[rules.horizon])
        yield (
            "small models' best rates were seen to fall faster with length (D^-0.70 at 50 M "
            "parameters, from 25 B tokens on, arXiv 2409.19913, table 5): by that this proxy's "
            f"would be {steeper:.2g} times the one taken"
        )
    if _wider(leap, rules) > MUCH_WIDER:
        yield (
            "one weight_decay serves blocks and tables, whose rate is "
            f"{_wider(leap, rules):.3g} times as high: so much faster they decay"
        )
    if leap.tokens_per_step > critical_batch(leap.tokens):
        yield (
            f"{leap.tokens_per_step:,} tokens a step pass the critical batch, "
            f"{critical_batch(leap.tokens):,.0f} (arXiv 2505.13738): its root is not a rule there"
        )
