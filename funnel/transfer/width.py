"""Scale the learning rate of the blocks' matrices with the width of a model."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from funnel.transfer.source import Rule, Seen

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
