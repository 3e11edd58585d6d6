"""Provide a proposer that remembers what it was shown."""

from __future__ import annotations

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.sampler import SamplerProposer


class Spy:
    """Propose as the sampler does, and keep the memories it was shown."""

    def __init__(self, rails: Rails) -> None:
        self.seen: list[Memory] = []
        self._proposer = SamplerProposer(rails)

    def propose(self, memory: Memory) -> Offer:
        self.seen.append(memory)
        return self._proposer.propose(memory)
