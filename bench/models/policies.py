"""Other ways to say whose turn it is, beside the product's."""

from __future__ import annotations

from random import Random

from agent.proposers.base import Memory
from agent.proposers.draws import rng_for
from agent.proposers.hybrid import MODEL_TURNS, SAMPLER_TURNS, HybridProposer
from trajectory.proposals import MODEL
from trajectory.track_record import KEPT, TrackRecord

FIXED = 0.3


class FixedShare(HybridProposer):
    """A share of the turns by chance, whatever became of them: what 0.2.0 did, after arXiv
    2603.24647."""

    def llm_turn(self, memory: Memory, kind: str) -> bool:
        """See :meth:`HybridProposer.llm_turn`."""
        return memory.iter > self._warmup and rng_for("hybrid", memory).random() < FIXED


class AlwaysAsked(HybridProposer):
    """Every turn, from the first."""

    def llm_turn(self, memory: Memory, kind: str) -> bool:
        """See :meth:`HybridProposer.llm_turn`."""
        return True


class Thompson(HybridProposer):
    """Thompson's sampling on keeps among the same latest turns, from one keep in ten before any."""

    def llm_turn(self, memory: Memory, kind: str) -> bool:
        """See :meth:`HybridProposer.llm_turn`."""
        if memory.iter <= self._warmup:
            return False
        records = (memory.evidence.track_record(one) for one in (MODEL, kind))
        return thompson(rng_for("hybrid", memory), *records)


def thompson(rng: Random, model: TrackRecord, sampler: TrackRecord) -> bool:
    """Whether the model's rate of keeps, drawn from what may be believed of it, is the higher."""

    def drawn(record: TrackRecord, turns: int) -> float:
        latest = record.latest[-turns:]
        kept = latest.count(KEPT)
        return rng.betavariate(1 + kept, 9 + len(latest) - kept)

    return drawn(model, MODEL_TURNS) > drawn(sampler, SAMPLER_TURNS)


POLICIES: dict[str, type[HybridProposer]] = {
    "lent and earned": HybridProposer,
    "30 % for ever": FixedShare,
    "Thompson on keeps": Thompson,
}
