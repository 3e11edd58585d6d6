"""Let a proposer learn from earlier campaigns.

Only the proposer gets them: neither the rails nor the judge ever see them.
"""

from __future__ import annotations

from dataclasses import replace

from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.priors import Prior


class InformedProposer:
    """Passes earlier campaigns to another proposer in its memory."""

    def __init__(self, proposer: Proposer, priors: tuple[Prior, ...]) -> None:
        self._proposer = proposer
        self._priors = priors

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the other proposer has none.
        """
        return self._proposer.propose(replace(memory, priors=self._priors))
