"""Scale the learning rate with the length of a run, at a constant batch."""

from __future__ import annotations

from typing import Literal, TypeAlias

from funnel.transfer.source import Rule, Seen

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
