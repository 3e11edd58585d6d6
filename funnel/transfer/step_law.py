"""A rate without a proxy: Step Law's own, to hold a carried one against."""

from __future__ import annotations

from funnel.transfer.source import Rule, Seen

STEP_LAW_LR = Rule(
    name="Step Law, rate",
    paper="Li et al. 2025, arXiv 2503.04715, equation 1 and its published fit",
    formula="lr = 1.79 N^-0.713 D^0.307, N without embeddings, with its own batch",
    seen=(
        Seen(what="parameters", low=6e7, high=1.1e9),
        Seen(what="tokens", low=4e9, high=1e11),
    ),
)


def step_law_lr(params: float, tokens: float) -> float:
    """The best peak rate of AdamW, the same for everything."""
    return float(1.79 * params**-0.713 * tokens**0.307)
