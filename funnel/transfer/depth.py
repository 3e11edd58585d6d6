"""Scale the learning rate of the blocks' matrices with the depth of a model.

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
