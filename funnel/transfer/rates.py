"""Scale the learning rate with width, depth, length and batch, by published rules.

CompleteP (Dey et al. 2025, arXiv 2505.01618, table 1) multiplies every residual branch by l^alpha
and the rates in the blocks by l^(1 - alpha), with l = L_base / L. With alpha = 1 the rates do not
change. It also multiplies Adam's epsilon by l, and keeps the decay of a step, lr × weight_decay,
independent of the width's factor of the rate. Its own code does the same (EleutherAI/nanoGPT-mup,
branch completep). Mlodozeniec et al. 2025 (arXiv 2512.22382) adopt it and add batch and duration.

A launcher without multipliers on its residual branches cannot apply CompleteP. Without multipliers
the branches initially add up to the square root of their number. That corresponds to alpha = 1/2
(Depth-muP, Yang et al. 2023, arXiv 2310.02244), which multiplies the rates by sqrt(l). According to
arXiv 2505.01618 it does not keep the best rate constant, but it is the closest that a single --lr
allows. docs/transfer.md compares it with published runs.
"""

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from autoresearch.values import Frozen
from autoresearch.words import scalar_text


class Seen(Frozen):
    """The range of one quantity over which a rule was tested."""

    what: str
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.what} {scalar_text(self.low)} to {scalar_text(self.high)}"


class Rule(Frozen):
    """One published rule."""

    name: str
    paper: str
    """Authors, year, arXiv number, and the place in the paper."""
    formula: str
    seen: tuple[Seen, ...] = ()
    """Ranges over which the rule was fitted or tested, if the paper states them."""

    def beyond(self, **values: float) -> Iterator[str]:
        """Yield a note, in words, for each value outside the range of its quantity.

        :param values: values by the name of the quantity.
        """
        for seen in self.seen:
            value = values.get(seen.what)
            if value is not None and value not in seen:
                yield (
                    f"{self.name} is used at {scalar_text(value)} {seen.what}, "
                    f"and was seen over {scalar_text(seen.low)} to {scalar_text(seen.high)}"
                )


WidthRule: TypeAlias = Literal["mup", "sqrt_width", "step_law"]

STEP_LAW_SIZE_EXPONENT = -0.713

WIDTH_RULES: dict[WidthRule, Rule] = {
    "mup": Rule(
        name="maximal update",
        paper="Yang et al. 2022, arXiv 2203.03466, tables 3 and 8, Adam",
        formula=(
            "matrices in the blocks: lr and Adam's epsilon × w, variance at the start × w, logits "
            "× w, with w = d_base / d_model; tables, head and norms as they are"
        ),
    ),
    "sqrt_width": Rule(
        name="square root of the width",
        paper="no paper known to us; the published shortcut of a 7 B plan",
        formula="lr × sqrt(d_base / d_model), for everything",
    ),
    "step_law": Rule(
        name="Step Law, size",
        paper="Li et al. 2025, arXiv 2503.04715, equation 1 and its published fit",
        formula="lr × (N / N_base)^-0.713, for everything; N without embeddings",
        seen=(Seen(what="parameters", low=6e7, high=1.1e9),),
    ),
}
COVER_DEPTH: frozenset[WidthRule] = frozenset({"step_law"})
"""Rules that depend on the whole size, so no rule of depth applies with them."""


def width_factor(rule: WidthRule, *, d_base: int, d_model: int, size_ratio: float) -> float:
    """Return the factor of the rate of the blocks' matrices.

    :param size_ratio: ratio of the large model's parameters without embeddings to the small one's.
    """
    if rule == "step_law":
        return float(size_ratio**STEP_LAW_SIZE_EXPONENT)
    ratio = d_base / d_model
    return ratio if rule == "mup" else math.sqrt(ratio)


DepthRule: TypeAlias = Literal["complete_p", "depth_mup"]

DEPTH_RULES: dict[DepthRule, Rule] = {
    "complete_p": Rule(
        name="CompleteP",
        paper="Dey et al. 2025, arXiv 2505.01618, table 1, alpha = 1; kept by arXiv 2512.22382",
        formula="lr as it is; residual branches and Adam's epsilon × L_base / L",
    ),
    "depth_mup": Rule(
        name="Depth-muP",
        paper="Yang et al. 2023, arXiv 2310.02244; alpha = 1/2 of arXiv 2505.01618, table 1",
        formula="lr × sqrt(L_base / L), the residual branches likewise, or left to add up",
    ),
}


def depth_factor(rule: DepthRule, *, base: int, n_layer: int) -> float:
    """Return the factor of the rate of the blocks' matrices."""
    return math.sqrt(base / n_layer) if rule == "depth_mup" else 1.0


def step_law_lr(params: float, tokens: float) -> float:
    """Return AdamW's best peak rate for a model and its data, the same for all weights.

    Li et al. 2025 (arXiv 2503.04715, equation 1 and its published fit) tested it at 60 M to 1.1 B
    parameters without embeddings and 4 to 100 B tokens, with the law's own batch.
    """
    return float(1.79 * params**-0.713 * tokens**0.307)


HorizonRule: TypeAlias = Literal["delphi", "microsoft", "complete_d", "step_law", "none"]

EXPONENTS: dict[HorizonRule, float] = {
    "delphi": -0.3,
    "microsoft": -0.32,
    "complete_d": -0.5,
    "step_law": 0.307 - 0.571 / 2,
    "none": 0.0,
}
"""Exponent of the tokens at a constant batch, by rule.

Step Law's 0.307 is for a batch that grows as D^0.571. The effect of that growth under the
square-root rule of the batch is subtracted.
"""

STEEP_AT = {5.0e7: -0.7029, 1.25e8: -0.6531, 3.5e8: -0.3799, 7.6e8: -0.3155, 1.3e9: -0.3171}
"""Exponent of the tokens by parameters (Bjorck et al., arXiv 2409.19913v3, table 5, batches of
0.5 M tokens).

It is steeper for the smallest models. Their -0.32 is for 760 M parameters and more.
"""
SMALL = 3.5e8
"""Parameters below which the exponents are steeper."""

HORIZON_RULES: dict[HorizonRule, Rule] = {
    "delphi": Rule(
        name="Delphi",
        paper="Marin's Delphi recipe, openathena.ai/blog/delphi and the models' cards",
        formula="lr × (T / T_base)^-0.3 at one batch, with lr × sqrt(B / B_base)",
        seen=(Seen(what="tokens", low=2.3e9, high=6e11),),
    ),
    "microsoft": Rule(
        name="token horizon",
        paper="Bjorck et al. 2024, arXiv 2409.19913",
        formula="lr × (D / D_base)^-0.32 at one batch; jointly N^-0.23 D^-0.32",
        seen=(Seen(what="tokens", low=2.5e10, high=8e11),),
    ),
    "complete_d": Rule(
        name="Complete(d)P, duration",
        paper="Mlodozeniec et al. 2025, arXiv 2512.22382: a stochastic differential equation kept",
        formula="lr × sqrt((B / B_base) × (D_base / D))",
    ),
    "step_law": Rule(
        name="Step Law, tokens",
        paper="Li et al. 2025, arXiv 2503.04715, equation 1 and its published fit",
        formula="lr × (D / D_base)^0.307 with the batch at D^0.571: D^0.0215 at one batch",
        seen=(Seen(what="tokens", low=4e9, high=1e11),),
    ),
    "none": Rule(
        name="no horizon",
        paper="what is done where only the width is carried",
        formula="lr as it is",
    ),
}


def horizon_factor(rule: HorizonRule, *, tokens_ratio: float) -> float:
    """Return the factor of every learning rate.

    :param tokens_ratio: the long run's tokens over the short one's.
    """
    return float(tokens_ratio ** EXPONENTS[rule])


BatchRule: TypeAlias = Literal["step_law", "power_lines", "kept"]

POWER_LINES_SEQUENCE = 2048
"""Tokens per sequence in the laws of Power Lines."""

BATCH_RULES: dict[BatchRule, Rule] = {
    "step_law": Rule(
        name="Step Law, batch",
        paper="Li et al. 2025, arXiv 2503.04715, equation 1 and its published fit",
        formula="B = 0.58 D^0.571 tokens",
        seen=(Seen(what="tokens", low=4e9, high=1e11),),
    ),
    "power_lines": Rule(
        name="Power Lines, optimal batch",
        paper="Bergsma et al. 2025, arXiv 2505.13738",
        formula="B = 0.0306 D^0.383 sequences of 2,048 tokens",
        seen=(Seen(what="parameters", low=1.11e8, high=3.3e9),),
    ),
    "kept": Rule(
        name="batch as it is",
        paper="none: nothing says that a small run's batch is right for a long one",
        formula="B = B_base",
    ),
}
SQRT_BATCH = Rule(
    name="square root of the batch",
    paper="Malladi et al. 2022, arXiv 2205.10287, for Adam; kept by arXiv 2512.22382",
    formula="lr × sqrt(B / B_base), below the critical batch",
)
CRITICAL = Rule(
    name="critical batch",
    paper="Bergsma et al. 2025, arXiv 2505.13738",
    formula="B = 0.0471 D^0.462 sequences of 2,048 tokens: beyond it, more is wasted",
)
"""Batch up to which the square-root rule holds; no other value of a plan depends on it.

The exponent was checked against the paper. The factor is from memory and could not be checked.
"""


def step_law_batch(tokens: float) -> float:
    """Return Step Law's tokens per step for a run of this many tokens."""
    return float(0.58 * tokens**0.571)


def power_lines_batch(tokens: float) -> float:
    """Return the tokens per step at which a run of this many tokens reaches the lowest loss."""
    return float(POWER_LINES_SEQUENCE * 0.0306 * tokens**0.383)


def critical_batch(tokens: float) -> float:
    """Return the tokens per step above which a run of this many tokens hardly saves steps."""
    return float(POWER_LINES_SEQUENCE * 0.0471 * tokens**0.462)


def tokens_a_step(rule: BatchRule, *, kept: int, tokens: int) -> float:
    """Return the tokens per step that a rule asks for.

    :param kept: the small run's tokens per step.
    :param tokens: tokens of the large run.
    """
    if rule == "kept":
        return kept
    return step_law_batch(tokens) if rule == "step_law" else power_lines_batch(tokens)


def batch_factor(tokens_per_step: float, base: float) -> float:
    """Return the factor of every learning rate, by the rule :data:`SQRT_BATCH`."""
    return math.sqrt(tokens_per_step / base)
