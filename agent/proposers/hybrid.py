"""Proposers made of proposers: a model that overrides a sampler, and one that stands in.

When a model's turn comes to nothing, the other makes the proposal, the record says why and keeps
every attempt, and the model has its next turn as if nothing had happened. (How little a dead
endpoint then costs is the endpoint's matter: see ``Patience.probation_s``.)
"""

from __future__ import annotations

import json
from dataclasses import replace

from agent.proposers.base import Memory, Offer, Proposer, ProposerError, SuggestibleProposer
from agent.proposers.draws import rng_for

SHARE = 0.3
WARMUP = 10


class HybridProposer:
    """The sampler proposes; on a share of the iterations a model may override it.

    The defaults are those of arXiv 2603.24647, where such a hybrid did best. Whose turn it is
    follows from the campaign's seed and the iteration alone. A record with ``overrode`` set says
    that the model saw those changes; it may have repeated them.

    :param llm: None: the sampler alone.
    :param share: of the iterations after warm-up.
    :param warmup: first iterations, all of them the sampler's.
    """

    def __init__(
        self,
        sampler: Proposer,
        llm: SuggestibleProposer | None,
        *,
        share: float = SHARE,
        warmup: int = WARMUP,
    ) -> None:
        self._sampler = sampler
        self._llm = llm
        self._share = share
        self._warmup = warmup

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the sampler has none.
        """
        suggested = self._sampler.propose(memory)
        if self._llm is None or not self.llm_turn(memory):
            return suggested
        try:
            offer = self._llm.propose(memory, json.loads(suggested.raw)["changes"])
        except ProposerError as error:
            return standing_in(suggested, error)
        return _with_latency(offer, suggested.record.latency_s)

    def llm_turn(self, memory: Memory) -> bool:
        """Whether the model is asked at this iteration."""
        if memory.iter <= self._warmup:
            return False
        return rng_for("hybrid", memory).random() < self._share


class FallbackProposer:
    """One proposer, and another for whenever the first has nothing."""

    def __init__(self, primary: Proposer, fallback: Proposer) -> None:
        self._primary = primary
        self._fallback = fallback

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the fallback has none either.
        """
        try:
            return self._primary.propose(memory)
        except ProposerError as error:
            return standing_in(self._fallback.propose(memory), error)


def standing_in(offer: Offer, error: ProposerError) -> Offer:
    """An offer made because another proposer failed, with what that one went through."""
    record = offer.record.model_copy(
        update={
            "fallback": str(error),
            "attempts": error.attempts,
            "model": error.model,
            "prompt_sha256": error.prompt_sha256,
        }
    )
    waited_s = sum(attempt.latency_s for attempt in error.attempts)
    return _with_latency(replace(offer, record=record), waited_s)


def _with_latency(offer: Offer, more_s: float) -> Offer:
    latency_s = offer.record.latency_s + more_s
    return replace(offer, record=offer.record.model_copy(update={"latency_s": latency_s}))
