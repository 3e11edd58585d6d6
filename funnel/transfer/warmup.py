"""Choose the length of the warm-up."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from funnel.transfer.source import Rule

WarmupRule: TypeAlias = Literal["fraction", "untuned"]

WARMUP_RULES: dict[WarmupRule, Rule] = {
    "fraction": Rule(
        name="share of the schedule",
        paper="none: the shape of the schedule is kept at any length",
        formula="the same share of all steps",
    ),
    "untuned": Rule(
        name="untuned linear warm-up",
        paper="Ma and Yarats 2019, arXiv 1910.04209",
        formula="2 / (1 - beta2) steps",
    ),
}


def warmup_steps(rule: WarmupRule, *, fraction: float, steps: int, beta2: float) -> int:
    """Return the steps of linear warm-up, fewer than the run's steps."""
    wanted = fraction * steps if rule == "fraction" else math.ceil(2 / (1 - beta2))
    return min(round(wanted), steps - 1)
