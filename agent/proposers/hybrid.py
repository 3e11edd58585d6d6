"""Combine proposers: a model that overrides a sampler, and a fallback.

If a model's iteration fails, the other proposer makes the proposal. The record says why and keeps
every attempt, and the iteration counts as one that the model did not win. (``Patience.probation_s``
limits the cost of a dead endpoint.)

Choosing the proposer is a bandit problem with two arms whose value changes during the night. The
reward is a keep, and keeps are rare: one iteration in ten to thirty. A bandit that must first lose
with an arm is therefore expensive. In simulation, Thompson sampling gives a model that is never
kept 27 to 48 of 90 iterations. Here the model is *lent* a small share of iterations whatever their
results, and *earns* more. It gets every iteration while its latest ones were kept more often than
the sampler's, per unit of time. So a useless model gets no more than its share, in the manner of
conservative bandits (Wu et al. 2016, arXiv 1602.04282). One keep earns about as many iterations as
the sampler needs for one, and fewer if replies are slow. The gain is used up within
:data:`MODEL_WINDOW` iterations without another keep, since only the latest count, as in
sliding-window bandits (Garivier and Moulines 2011, arXiv 0805.3415). docs/models.md has the
figures.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

from agent.proposers.base import Memory, Offer, Proposer, ProposerError, SuggestibleProposer
from autoresearch.errors import MachineryError
from autoresearch.plain_text import plain
from autoresearch.redaction import redact
from trajectory.proposals import MODEL, Changes
from trajectory.track_record import TrackRecord

SAID_CHARACTERS = 300
"""Most characters of an unexpected error to repeat."""
SHARE = 0.05
WARMUP = 10
MODEL_WINDOW, SAMPLER_WINDOW = 10, 30
"""Number of latest iterations of each that are compared."""


class HybridProposer:
    """The sampler proposes, and the model may override it on iterations it is lent or has earned.

    The choice depends only on the iteration and on earlier rows. A record with ``overrode`` set
    says that the model saw those changes; it may have repeated them. It sees none that change more
    knobs than it is asked for.

    :param llm: None: only the sampler.
    :param share: share of iterations after warm-up that are lent whatever the results. The first of
        them is the model's unless the share is 0.
    :param warmup: number of first iterations, all of them the sampler's.
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

        :raises ProposerError: if the sampler has none.
        """
        suggested = self._sampler.propose(memory)
        if self._llm is None or not self.asks_llm(memory, suggested.record.kind):
            return suggested
        try:
            offer = self._llm.propose(memory, _shown(suggested, memory))
        except MachineryError:
            raise
        except Exception as error:  # noqa: BLE001 (a proposer's bug costs only its iteration)
            return standing_in(suggested, error)
        return _with_latency(offer, suggested.record.latency_s)

    def asks_llm(self, memory: Memory, kind: str) -> bool:
        """Return whether the model is asked at this iteration.

        :param kind: the sampler's kind.
        """
        after_warmup = memory.iter - self._warmup
        if after_warmup < 1 or not self._share:
            return False
        evidence = memory.evidence
        earned = has_earned(evidence.track_record(MODEL), evidence.track_record(kind))
        return earned or is_lent(after_warmup, self._share)


def _shown(suggested: Offer, memory: Memory) -> Changes | None:
    """Return the sampler's changes if the model could repeat them."""
    changes: Changes = json.loads(suggested.raw)["changes"]
    return changes if len(changes) <= memory.asked_changes else None


def is_lent(number: int, share: float) -> bool:
    """Return whether an iteration, counted from 1, is in the lent share: evenly spread, starting
    with the first."""
    return math.ceil(share * number) > math.ceil(share * (number - 1))


def has_earned(model: TrackRecord, sampler: TrackRecord) -> bool:
    """Return whether the model was recently kept more often than the sampler, per unit of time. A
    model three times as slow must be kept three times as often; a faster one gains no advantage."""
    slower = 1.0
    if model.turn_s and sampler.turn_s:
        slower = max(model.turn_s / sampler.turn_s, 1.0)
    return model.rate(MODEL_WINDOW) > slower * sampler.rate(SAMPLER_WINDOW)


class FallbackProposer:
    """A proposer with a fallback for its failures."""

    def __init__(self, primary: Proposer, fallback: Proposer) -> None:
        self._primary = primary
        self._fallback = fallback

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the fallback has none either.
        """
        try:
            return self._primary.propose(memory)
        except MachineryError:
            raise
        except Exception as error:  # noqa: BLE001 (a proposer's bug costs only its iteration)
            return standing_in(self._fallback.propose(memory), error)


def standing_in(offer: Offer, error: Exception) -> Offer:
    """Return a fallback's offer with the failed proposer's attempts."""
    if not isinstance(error, ProposerError):
        said = plain(f"{type(error).__name__}: {redact(str(error))}")[:SAID_CHARACTERS]
        error = ProposerError(f"the proposer failed ({said}); it is asked again later")
    record = offer.record.model_copy(
        update={
            "fallback": "; ".join(filter(None, (offer.record.fallback, str(error)))),
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
