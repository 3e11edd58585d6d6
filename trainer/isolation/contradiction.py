"""Check a result against the spec it claims to belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.spec import (
    CommandOk,
    Measured,
    ScoredText,
    TextScore,
    TrialFailed,
    TrialOk,
    TrialSpec,
)


def contradiction(spec: TrialSpec, result: Measured | TrialFailed) -> str:
    """Return why this cannot be the result of that spec; empty if it can."""
    if isinstance(result, TrialFailed):
        return ""
    if isinstance(result, CommandOk) or spec.command is not None:
        return _of_another_trainer(spec, result)
    return _of_another_run(spec, result)


def _of_another_run(spec: TrialSpec, result: TrialOk) -> str:
    config, steps = spec.gpt, spec.steps
    if result.precision != config.precision:
        return f"trained in {result.precision}, not {config.precision}"
    if result.backend != spec.backend:
        return f"trained by the {result.backend} backend, not {spec.backend}"
    if steps is not None and result.steps != steps:
        return f"{result.steps} steps, not the {steps} of the budget"
    if result.tokens != result.steps * config.tokens_per_step:
        return f"{result.tokens} tokens in {result.steps} steps of {config.tokens_per_step}"
    return _of_other_scores(spec, result)


def _of_other_scores(spec: TrialSpec, result: TrialOk) -> str:
    if len(result.checkpoints_bpb) != len(spec.checkpoints):
        scored, asked = len(result.checkpoints_bpb), len(spec.checkpoints)
        return f"{scored} evaluations, not the {asked} it was asked for"
    return _of_other_texts(spec.texts, result.texts)


def _of_another_trainer(spec: TrialSpec, result: Measured) -> str:
    if spec.command is None or not isinstance(result, CommandOk):
        return "scored by another trainer than was asked for"
    wanted = spec.command.measure.direction
    return "" if result.direction == wanted else f"to {result.direction}, not to {wanted}"


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
