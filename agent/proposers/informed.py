"""A proposer that knows earlier campaigns.

They are handed to it and to nobody else: neither the rails nor the judge ever see them.
"""

from __future__ import annotations

from dataclasses import replace

from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.priors import Prior


class InformedProposer:
    """Shows another proposer a memory with earlier campaigns in it."""

    def __init__(self, proposer: Proposer, priors: tuple[Prior, ...]) -> None:
        self._proposer = proposer
        self._priors = priors

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the other proposer has none.
        """
        return self._proposer.propose(replace(memory, priors=self._priors))
