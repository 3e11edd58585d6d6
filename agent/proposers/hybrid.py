"""Proposers made of proposers: a model that overrides a sampler, and one that stands in.

When a model's turn comes to nothing, the other makes the proposal, the record says why and keeps
every attempt, and the model has had a turn that earned it nothing. (How little a dead endpoint then
costs is the endpoint's matter: see ``Patience.probation_s``.)

Whose turn it is, is a bandit's question, of two arms whose worth changes as the night goes on. A
keep is what an arm is paid, and keeps are rare: one turn in ten to thirty. So a bandit that must
first lose with an arm to know it is dear (simulated, Thompson's sampling gives a model that is
never kept 27 to 48 of 90 turns). Here the model is *lent* a small share of the turns, whatever
became of them, and *earns* more: as long as it was kept more often in its latest turns than the
sampler was in its own, for the time that turns take, every turn is the model's. So a useless one
has no more turns than it is lent, in the manner of conservative bandits (Wu et al. 2016, arXiv
1602.04282); one keep earns about as many turns as the sampler needs for one, and fewer where
replies are slow; and what was earned is used up within :data:`MODEL_TURNS` turns without another,
for only latest turns count, as in sliding-window bandits (Garivier and Moulines 2011, arXiv
0805.3415). The figures are in docs/models.md.
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
"""The most that is repeated of an unexpected error."""
SHARE = 0.05
WARMUP = 10
MODEL_TURNS, SAMPLER_TURNS = 10, 30
"""How many of the latest turns of each are compared."""


class HybridProposer:
    """The sampler proposes; on the turns that a model is lent or has earned it may override it.

    Whose turn it is follows from the iteration and from the rows before it alone. A proposal's
    record with ``overrode`` set says that the model saw those changes; it may have repeated them.
    It sees none that turn more knobs than it is asked for.

    :param llm: None: the sampler alone.
    :param share: of the iterations after warm-up, lent whatever became of them. The first of them
        is the model's where the share is not 0.
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
        if self._llm is None or not self.llm_turn(memory, suggested.record.kind):
            return suggested
        try:
            offer = self._llm.propose(memory, _shown(suggested, memory))
        except MachineryError:
            raise
        except Exception as error:  # noqa: BLE001 (a proposer's bug costs its turn alone)
            return standing_in(suggested, error)
        return _with_latency(offer, suggested.record.latency_s)

    def llm_turn(self, memory: Memory, kind: str) -> bool:
        """Whether the model is asked at this iteration.

        :param kind: the sampler's.
        """
        after_warmup = memory.iter - self._warmup
        if after_warmup < 1 or not self._share:
            return False
        evidence = memory.evidence
        earned = has_earned(evidence.track_record(MODEL), evidence.track_record(kind))
        return earned or is_lent(after_warmup, self._share)


def _shown(suggested: Offer, memory: Memory) -> Changes | None:
    """The sampler's changes, where the model could repeat them."""
    changes: Changes = json.loads(suggested.raw)["changes"]
    return changes if len(changes) <= memory.asked_changes else None


def is_lent(number: int, share: float) -> bool:
    """Whether a turn, counted from 1, is among the share that is lent: evenly spread, the first
    turn the first of them."""
    return math.ceil(share * number) > math.ceil(share * (number - 1))


def has_earned(model: TrackRecord, sampler: TrackRecord) -> bool:
    """Whether the model was kept more often of late than the sampler was, for the time that a turn
    takes: one three times as long, by its replies, is to be kept three times as often. A model
    whose turns are shorter earns none the sooner."""
    slower = 1.0
    if model.turn_s and sampler.turn_s:
        slower = max(model.turn_s / sampler.turn_s, 1.0)
    return model.rate(MODEL_TURNS) > slower * sampler.rate(SAMPLER_TURNS)


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
        except MachineryError:
            raise
        except Exception as error:  # noqa: BLE001 (a proposer's bug costs its turn alone)
            return standing_in(self._fallback.propose(memory), error)


def standing_in(offer: Offer, error: Exception) -> Offer:
    """An offer made because another proposer failed, with what that one went through."""
    if not isinstance(error, ProposerError):
        said = plain(f"{type(error).__name__}: {redact(str(error))}")[:SAID_CHARACTERS]
        error = ProposerError(f"the proposer failed ({said}); it is asked again at its next turn")
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
