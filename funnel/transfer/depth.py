"""The learning rate of the blocks' matrices as a model grows deeper.

CompleteP (Dey et al. 2025, arXiv 2505.01618, table 1) multiplies every residual branch by l^alpha
and the rates in the blocks by l^(1 - alpha), l = L_base / L: with alpha = 1 the rates stay. It asks
for Adam's epsilon × l besides, and that the decay of a step, lr × weight_decay, does not shrink
with the width's part of the rate. Its own code says the same (EleutherAI/nanoGPT-mup, branch
completep). Mlodozeniec et al. 2025 (arXiv 2512.22382) keep it and add batch and duration.

A launcher without multipliers on its branches cannot carry CompleteP out. Without them a stack's
branches add up, at the start, to the square root of their number: alpha = 1/2 (Depth-muP, Yang et
al. 2023, arXiv 2310.02244), which asks for sqrt(l) on the rates. It does not keep the best rate
where it was, says 2505.01618; it is the nearest that one --lr can come (docs/transfer.md has what
published runs say of it).
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from funnel.transfer.source import Rule

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
