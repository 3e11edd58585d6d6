"""Compute Step Law's learning rate, which needs no proxy, to compare carried rates with."""

from __future__ import annotations


def step_law_lr(params: float, tokens: float) -> float:
    """Return AdamW's best peak rate for a model and its data, the same for all weights.

    Li et al. 2025 (arXiv 2503.04715, equation 1 and its published fit) tested it at 60 M to 1.1 B
    parameters without embeddings and 4 to 100 B tokens, with the law's own batch.
    """
    return float(1.79 * params**-0.713 * tokens**0.307)
