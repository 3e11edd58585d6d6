"""Propose uniform random edits, the baseline for other proposers."""

from __future__ import annotations

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import offered, uniform_draws

MAX_DRAWS = 500


class RandomProposer:
    """Changes one to ``few_changes`` knobs of the reference, each uniformly over its scale.

    Draws that the rails refuse or that were tried before are drawn again.
    """

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the menu seems exhausted.
        """
        return offered(
            "random",
            self._rails,
            memory,
            lambda rng: uniform_draws(rng, memory, "drawn uniformly"),
            MAX_DRAWS,
        )
