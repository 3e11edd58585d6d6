"""A rate without a proxy: Step Law's own, to hold a carried one against."""

from __future__ import annotations


def step_law_lr(params: float, tokens: float) -> float:
    """Return AdamW's best peak rate for a model and its data, the same for all its weights.

    Li et al. 2025 (arXiv 2503.04715, equation 1 and its published fit), seen at 60 M to 1.1 B
    parameters without embeddings and 4 to 100 B tokens, with its own batch.
    """
    return float(1.79 * params**-0.713 * tokens**0.307)
