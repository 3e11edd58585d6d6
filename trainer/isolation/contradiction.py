"""What a result says, held against the order it is said to be of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.spec import ScoredText, TextScore, TrialFailed, TrialOk, TrialSpec


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
    return _of_other_scores(spec, result)


def _of_other_scores(spec: TrialSpec, result: TrialOk) -> str:
    if len(result.looks_bpb) != len(spec.looks):
        return f"{len(result.looks_bpb)} looks, not the {len(spec.looks)} it was asked for"
    return _of_other_texts(spec.texts, result.texts)


def _of_other_texts(asked: Sequence[ScoredText], scored: Sequence[TextScore]) -> str:
    if [text.sha256 for text in asked] != [score.sha256 for score in scored]:
        return f"scored {len(scored)} texts, not the {len(asked)} it was asked to"
    for text, score in zip(asked, scored, strict=True):
        targets = text.tokens - len(text.parts)
        if (score.val_bytes, score.val_tokens) != (text.bytes, targets):
            return f"scored {score.val_bytes} bytes of {text.name}, not its {text.bytes}"
        if len(score.parts_bpb) != len(text.parts):
            return f"scored {len(score.parts_bpb)} parts of {text.name}, not its {len(text.parts)}"
        bits = (bpb * part.bytes for bpb, part in zip(score.parts_bpb, text.parts, strict=True))
        if not math.isclose(math.fsum(bits) / text.bytes, score.val_bpb, rel_tol=1e-9):
            return f"the score of {text.name} is not that of its parts together"
    return ""
