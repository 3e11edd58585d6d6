"""Language models whose worth is known, because they know the world they are asked about.

Each stands where a real one would: it is shown the same memory, its replies go through the rails,
and it gets as many chances to mend one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, ProposerError
from agent.proposers.draws import Draw, rng_for, uniform_draws
from agent.proposers.llm.proposer import REPAIRS
from agent.proposers.llm.reply_form import example_text
from autoresearch.values import Scalar
from bench.simulator.world import World
from trainer.spec import Config, gpt
from trajectory.proposals import MODEL, Attempt, ProposerRecord

DRAWS = 64
"""Edits that those look through who know the truth."""


class StandIn(ABC):
    """A model in all but the endpoint."""

    def __init__(self, rails: Rails, *, latency_s: float = 0.0) -> None:
        """
        :param latency_s: that a reply is said to take.
        """
        self._rails = rails
        self._latency_s = latency_s

    @abstractmethod
    def replies(self, memory: Memory, suggestion: Mapping[str, Scalar]) -> Iterator[str]:
        """What it says, and says again when that is refused."""

    def propose(self, memory: Memory, suggestion: Mapping[str, Scalar] | None = None) -> Offer:
        """See :class:`~agent.proposers.base.SuggestibleProposer`.

        :raises ProposerError: where no reply passes the rails.
        """
        shown = dict(suggestion or {})
        attempts: list[Attempt] = []
        for raw in islice(self.replies(memory, shown), 1 + REPAIRS):
            checked = self._rails.check(raw, memory.reference, memory.evidence.configs)
            verdict = checked.verdict
            attempts.append(Attempt(raw=raw, verdict=verdict, latency_s=self._latency_s))
            if verdict.allowed:
                record = ProposerRecord(
                    kind=MODEL,
                    attempts=tuple(attempts),
                    latency_s=self._latency_s * len(attempts),
                    overrode=shown or None,
                )
                return Offer(raw, record)
        raise ProposerError("none of its replies was a usable proposal", tuple(attempts))


class _Knowing(StandIn):
    """One that looks through many edits and picks by the truth."""

    def __init__(self, rails: Rails, world: World, *, latency_s: float = 0.0) -> None:
        super().__init__(rails, latency_s=latency_s)
        self._world = world

    def replies(self, memory: Memory, suggestion: Mapping[str, Scalar]) -> Iterator[str]:
        reference = self._world.truth(gpt(memory.reference))
        assert reference is not None
        best: tuple[float, Draw] | None = None
        for draw, config in self._edits(memory):
            score = self._world.truth(config)
            if score is None:
                continue
            worth = self.worth(score - reference)
            if best is None or worth > best[0]:
                best = worth, draw
        if best is not None:
            yield best[1].raw

    @abstractmethod
    def worth(self, delta: float) -> float:
        """The edit of the largest worth is proposed.

        :param delta: its true difference from the reference; negative is better.
        """

    def _edits(self, memory: Memory) -> Iterator[tuple[Draw, Config]]:
        rng = rng_for(type(self).__name__, memory)
        for draw in islice(uniform_draws(rng, memory, "it knows"), DRAWS):
            config = self._rails.check(draw.raw, memory.reference, memory.evidence.configs).config
            if draw.changes and config is not None:
                yield draw, gpt(config)


class Oracle(_Knowing):
    """The best of many edits."""

    def worth(self, delta: float) -> float:
        return -delta


class Liar(_Knowing):
    """The worst of many edits that can be trained at all."""

    def worth(self, delta: float) -> float:
        return delta


class Waster(_Knowing):
    """The edit that matters least: it draws the longest races, and now and then one of them is
    kept by luck."""

    def worth(self, delta: float) -> float:
        return -abs(delta)


class Repeater(StandIn):
    """The same reply for ever."""

    def replies(self, memory: Memory, suggestion: Mapping[str, Scalar]) -> Iterator[str]:
        name, domain = next(iter(memory.menu.domains.items()))
        value = domain.rounded(domain.at(0.6))
        raw = json.dumps({"changes": {name: value}, "reason": "as I said"})
        while True:
            yield raw


class Copier(StandIn):
    """Says the prompt's example again, as the smallest models mostly do."""

    def replies(self, memory: Memory, suggestion: Mapping[str, Scalar]) -> Iterator[str]:
        while True:
            yield example_text(memory, self._rails.budget)


class Recorded(StandIn):
    """Says at random what a real model said in real nights: what it would have read there and here
    is lost, the kind of its replies is not."""

    def __init__(self, rails: Rails, said: Sequence[str], *, latency_s: float = 0.0) -> None:
        super().__init__(rails, latency_s=latency_s)
        self._said = said

    def replies(self, memory: Memory, suggestion: Mapping[str, Scalar]) -> Iterator[str]:
        rng = rng_for("recorded", memory)
        while True:
            yield rng.choice(self._said)
