"""Compute the values that the rules give a recipe at another size and length, and explain them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autoresearch.errors import TargetError
from autoresearch.words import scalar_text
from funnel.targets.shape import Architecture, ParameterCount
from funnel.transfer.rules import (
    FELT,
    LENGTH_EXPONENTS,
    SEEN,
    SIZE_EXPONENT,
    SMALL,
    STEEP_EXPONENT,
    WidthRule,
    batches,
    carried_timescale,
    critical_batch,
    timescale,
)
from trainer.schema import Config

NEAR = 0.1
"""Relative difference below which a batch counts as the rule's."""


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
    width: WidthRule

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

    @property
    def batches(self) -> dict[str, float]:
        """Tokens per step by each rule; the first is applied."""
        return batches(self.tokens, self.source.tokens_per_step)

    @property
    def is_near(self) -> bool:
        """Whether the batch is the rule's, up to rounding to sequences and GPUs."""
        return abs(self.tokens_per_step / self.batches["step_law"] - 1) < NEAR

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
        """The source's rate of the matrices in the blocks, without Muon's ratio."""
        narrower = self.base_width / self.source.d_model
        if self.source.optimizer == "muon":
            narrower = math.sqrt(narrower)
        return self.source.lr * narrower

    @property
    def muon_ratio(self) -> float:
        """Muon's rate as a multiple of ``lr``; 1 with AdamW."""
        return self.source.muon_lr_ratio if self.source.optimizer == "muon" else 1.0

    @property
    def warmup_fraction(self) -> float:
        return self.source.lr_warmup / self.horizon_steps

    # --- factors of the rate of the blocks' matrices, by rule -----------------------------------

    @property
    def widths(self) -> dict[str, float]:
        ratio = self.source.d_model / self.shape.d_model
        size = float((self.params / self.source_params) ** SIZE_EXPONENT)
        return {"mup": ratio, "sqrt_width": math.sqrt(ratio), "step_law": size}

    @property
    def depths(self) -> dict[str, float]:
        return {"complete_p": 1.0, "depth_mup": math.sqrt(self.source.n_layer / self.shape.n_layer)}

    @property
    def lengths(self) -> dict[str, float]:
        ratio = self.tokens / self.source_tokens
        return {rule: ratio**exponent for rule, exponent in LENGTH_EXPONENTS.items()}

    def everywhere(self, length: float) -> float:
        """Return the factor of every rate, from the tokens and the batch."""
        return length * math.sqrt(self.tokens_per_step / self.source.tokens_per_step)

    def block_lr(
        self,
        *,
        width: float | None = None,
        depth: float | None = None,
        length: float | None = None,
    ) -> float:
        """Return the run's rate of the matrices in the blocks.

        :param width: factor of another rule than the applied one; likewise ``depth`` and
            ``length``.
        """
        width = self.widths[self.width] if width is None else width
        depth = self.depths["depth_mup"] if depth is None else depth
        length = self.lengths["delphi"] if length is None else length
        return self.source_block_lr * (width * depth * self.everywhere(length))

    @property
    def base_lr(self) -> float:
        """The rate at :attr:`base_width`, for a launcher that scales by the width itself."""
        if self.width != "mup":
            return self.block_lr()
        # Tables have the depth's factor too: no launcher can apply it to the blocks alone.
        return self.source.lr * self.depths["depth_mup"] * self.everywhere(self.lengths["delphi"])

    # --- decay and warm-up, by rule; the first is applied ---------------------------------------

    @property
    def source_timescale(self) -> float:
        """AdamW's time scale of the source, as a share of its run."""
        lr = self.source_block_lr * self.muon_ratio
        return timescale(lr, self.source.weight_decay, self.horizon_steps)

    @property
    def decays(self) -> dict[str, float]:
        """The run's weight decay."""
        base = self.source_timescale
        power_lines = carried_timescale(
            base=base,
            tpp_base=self.source_tokens / self.source_params,
            tpp=self.tokens / self.params,
        )
        block_lr = self.block_lr() * self.muon_ratio
        return {
            **{
                rule: 0.0 if math.isinf(tau) else 1 / (block_lr * tau * self.steps)
                for rule, tau in {"power_lines": power_lines, "timescale": base}.items()
            },
            "kept": self.source.weight_decay,
        }

    @property
    def warmups(self) -> dict[str, int]:
        """Steps of linear warm-up, fewer than the run's steps."""
        wanted = {
            "fraction": self.warmup_fraction * self.steps,
            "untuned": math.ceil(2 / (1 - self.source.beta2)),
        }
        return {rule: min(round(steps), self.steps - 1) for rule, steps in wanted.items()}

    @property
    def tables_faster(self) -> float:
        """Ratio of the tables' rate to the blocks'."""
        return self.shape.d_model / self.base_width if self.width == "mup" else 1.0


KEPT = {
    "lr_min_ratio": "as it is: a fraction of the rate",
    "grad_clip": "as it is: a norm over all parameters",
    "beta1": "as it is",
    "beta2": "as it is: published runs of all sizes and batches have 0.95",
    "precision": "as it is: to be proved on the target's own GPU",
    "schedule": "as it is: the form",
    "decay_share": "as it is: a share of the schedule",
    "optimizer": "as it is",
    "muon_lr_ratio": "as it is: a ratio of two rates that scale alike",
    "mup_base_width": "not in the config: what is made of width is in its lr",
    "mup_base_depth": "not in the config: what is made of depth is in its lr",
}
"""Explanations of the fields that no rule changes."""
MUCH_WIDER = 8.0
"""Ratio of the tables' rate to the blocks' above which a note says that they share a decay."""


def reasons(leap: Leap, config: Config, *, is_asked: bool) -> dict[str, str]:
    """Return the explanation of each field of Config, by name.

    :param is_asked: whether the user asked for the batch.
    """
    source, shape = leap.source, leap.shape
    tokens = leap.tokens / leap.source_tokens
    batch = leap.tokens_per_step / source.tokens_per_step
    everywhere = leap.everywhere(leap.lengths["delphi"])
    factors = [
        f"width {scalar_text(leap.widths[leap.width])} ({leap.width}: {source.d_model} to "
        f"{shape.d_model})",
        f"depth {scalar_text(leap.depths['depth_mup'])} (depth_mup: {source.n_layer} to "
        f"{shape.n_layer} layers)",
        f"length and batch {scalar_text(everywhere)} (delphi: {tokens:.3g} times the tokens; "
        f"square root of {batch:.3g} times the batch)",
    ]
    rest = (
        "; tables, head and norms have all but the width's part, and the logits are multiplied by "
        f"{leap.base_width} / {shape.d_model}"
        if leap.width == "mup"
        else "; for everything"
    )
    by_rule = (
        "as given; the rates and the steps follow"
        if is_asked and not leap.is_near
        else "by B = 0.58 D^0.571 tokens (Step Law, arXiv 2503.04715); the proxy had "
        f"{source.tokens_per_step:,}"
    )
    return {
        **dict.fromkeys(Config.model_fields, "the target's architecture"),
        **dict.fromkeys(config.code, "as it is: the function"),
        **KEPT,
        "lr": f"lr × {' × '.join(factors)} for the matrices in the blocks{rest}",
        "lr_warmup": f"{leap.warmup_fraction:.3%} of the schedule: {source.lr_warmup} of "
        f"{leap.horizon_steps} steps, {config.lr_warmup} of {leap.steps:,}",
        "weight_decay": _decay(leap, config),
        "batch_size": f"{leap.tokens_per_step:,} tokens a step in sequences of {shape.seq_len:,}, "
        f"{by_rule}",
    }


def _decay(leap: Leap, config: Config) -> str:
    own = timescale(leap.block_lr() * leap.muon_ratio, config.weight_decay, leap.steps)
    small, wider = leap.source_timescale, leap.tables_faster
    tables = f"; that is the blocks', the tables' {own / wider:.2g}" if wider > 1 else ""
    if small > FELT:
        return (
            "the proxy's run is too short to show the effect of its decay: AdamW's "
            f"time scale is {own:.3g} of the run by 1.084 TPP^-0.527 (arXiv 2505.13738){tables}"
        )
    return (
        f"AdamW's time scale, {small:.3g} of the proxy's run and {own:.3g} of the target's "
        f"(arXiv 2505.13738){tables}"
    )


def beyond_range(leap: Leap) -> Iterator[str]:
    """Yield a note for each rule that is used outside its tested range."""
    values = {"tokens": float(leap.tokens), "tokens a parameter": leap.tokens / leap.params}
    for name, what, low, high in SEEN:
        if not low <= values[what] <= high:
            yield (
                f"{name} is used at {scalar_text(values[what])} {what}, and was seen over "
                f"{scalar_text(low)} to {scalar_text(high)}"
            )
    if leap.source_params < SMALL and leap.tokens > leap.source_tokens:
        steeper = (leap.tokens / leap.source_tokens) ** (
            STEEP_EXPONENT - LENGTH_EXPONENTS["delphi"]
        )
        yield (
            "small models' best rates were seen to fall faster with length (D^-0.70 at 50 M "
            "parameters, from 25 B tokens on, arXiv 2409.19913, table 5): by that this proxy's "
            f"would be {steeper:.2g} times the one taken"
        )
    if leap.tables_faster > MUCH_WIDER:
        yield (
            "one weight_decay serves blocks and tables, whose rate is "
            f"{leap.tables_faster:.3g} times as high: so much faster they decay"
        )
    if leap.tokens_per_step > critical_batch(leap.tokens):
        yield (
            f"{leap.tokens_per_step:,} tokens a step pass the critical batch, "
            f"{critical_batch(leap.tokens):,.0f} (arXiv 2505.13738): its root is not a rule there"
        )
