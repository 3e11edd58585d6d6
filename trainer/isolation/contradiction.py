"""What a result says, held against the order it is said to be of."""

from __future__ import annotations

from trainer.spec import TrialFailed, TrialOk, TrialSpec


def contradiction(spec: TrialSpec, result: TrialOk | TrialFailed) -> str:
    """Why this cannot be the result of that spec; empty where it can."""
    if isinstance(result, TrialFailed):
        return ""
    steps = spec.budget.steps(spec.config.tokens_per_step)
    if result.precision != spec.config.precision:
        return f"trained in {result.precision}, not {spec.config.precision}"
    if result.backend != spec.backend:
        return f"trained by the {result.backend} backend, not {spec.backend}"
    if steps is not None and result.steps != steps:
        return f"{result.steps} steps, not the {steps} of the budget"
    if result.tokens != result.steps * spec.config.tokens_per_step:
        return f"{result.tokens} tokens in {result.steps} steps of {spec.config.tokens_per_step}"
    return ""
