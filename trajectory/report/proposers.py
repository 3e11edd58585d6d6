"""Who proposed, and how often it paid."""

from __future__ import annotations

from dataclasses import dataclass

from trajectory.report.reading.ledger import Ledger
from trajectory.report.statistics import Estimate, of_share
from trajectory.report.words.text import label


@dataclass(frozen=True, slots=True)
class ProposerFigures:
    """One kind of proposer."""

    kind: str
    models: tuple[str, ...]
    share: Estimate
    """Of all iterations that used its proposal."""
    hit_rate: Estimate
    """Of its iterations, those whose proposal was kept."""
    kept: int
    measured: int
    """Of its iterations, those that ended with a score."""
    refused: int
    """Of its iterations, those the rails ended."""
    fallbacks: int
    attempts: int
    """Exchanges with a language model."""
    refused_attempts: int
    """Exchanges that gave no usable proposal."""
    latency_s: float
    """Mean over its iterations."""
    prompt_tokens: int
    completion_tokens: int


def proposers(ledger: Ledger) -> tuple[ProposerFigures, ...]:
    """Of every kind, the busiest first."""
    found = []
    for kind, work in ledger.workloads.items():
        turns = [turn for turn in ledger.turns if turn.kind == kind]
        kept = sum(turn.outcome == "keep" for turn in turns)
        share, hit_rate = of_share(len(turns), len(ledger.turns)), of_share(kept, len(turns))
        if share is None or hit_rate is None:
            continue
        found.append(
            ProposerFigures(
                kind=label(kind, 20),
                models=tuple(label(model, 60) for model in sorted(work.models)),
                share=share,
                hit_rate=hit_rate,
                kept=kept,
                measured=sum(turn.mean is not None for turn in turns),
                refused=sum(turn.outcome == "refused" for turn in turns),
                fallbacks=work.fallbacks,
                attempts=work.attempts,
                refused_attempts=work.refused_attempts,
                latency_s=work.latency_s / len(turns),
                prompt_tokens=work.prompt_tokens,
                completion_tokens=work.completion_tokens,
            )
        )
    return tuple(sorted(found, key=lambda figures: -figures.share.value))
