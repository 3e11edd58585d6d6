"""Choose the tokens per step, and scale the learning rate with them."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from funnel.transfer.source import Rule, Seen

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
