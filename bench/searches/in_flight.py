"""What a search would propose if several candidates were raced at once.

The loop races one candidate at a time. Shown the campaign as it stood some iterations ago, with
what came since as pending, a proposer knows what it would know with so many in flight, but for two
things: a candidate that was kept is the reference at once, and what the latest races said of the
noise is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.proposers.base import Memory, Offer, Proposer
from trajectory.evidence import ConfigEvidence, Evidence


@dataclass(frozen=True, slots=True)
class InFlight:
    """A proposer that learns each result some iterations late."""

    proposer: Proposer
    count: int
    """Candidates in flight: a result is known so many iterations after it was proposed."""
    told: bool = True
    """Whether it is told what is in flight; it never offers that again."""

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the other proposer has none.
        """
        evidence = memory.evidence
        since = max(0, memory.iter - self.count)
        waiting = [
            entry
            for entry in evidence.configs.values()
            if entry.iter > since and entry.config != memory.reference
        ]
        blank = {
            entry.config_hash: ConfigEvidence(entry.config, entry.config_hash, entry.iter)
            for entry in waiting
        }
        known = Evidence.restore(
            evidence.tally,
            [blank.get(key, entry) for key, entry in evidence.configs.items()],
        )
        pending = tuple(entry.config for entry in waiting) if self.told else ()
        return self.proposer.propose(replace(memory, evidence=known, pending=pending))
