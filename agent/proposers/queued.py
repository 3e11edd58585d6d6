"""Offer a proposal that somebody queued."""

from __future__ import annotations

from dataclasses import dataclass

from agent.proposers.base import Memory, Offer
from trajectory.proposals import ProposerRecord
from trajectory.queue import QUEUED, Queued


@dataclass(frozen=True, slots=True)
class QueuedProposer:
    """Offers one queued proposal and ignores the memory."""

    queued: Queued

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        record = ProposerRecord(kind=QUEUED, author=self.queued.author, queue_id=self.queued.id)
        return Offer(self.queued.proposal.raw, record)
