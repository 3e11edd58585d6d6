"""The proposer to beat: uniform chance."""

from __future__ import annotations

import time

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import exhausted, first_allowed, rng_for, uniform_draws
from trajectory.proposals import ProposerRecord

MAX_DRAWS = 500


class RandomProposer:
    """Turns one to ``max_changes`` knobs of the reference, each uniformly over its scale.

    Draws that the rails refuse or that were tried before are drawn again.
    """

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the menu seems exhausted.
        """
        began = time.monotonic()
        draws = uniform_draws(rng_for("random", memory), memory, "drawn uniformly")
        draw = first_allowed(self._rails, memory, draws, MAX_DRAWS)
        if draw is None:
            raise exhausted(memory, MAX_DRAWS)
        return Offer(draw.raw, ProposerRecord(kind="random", latency_s=time.monotonic() - began))
