"""The searches that are compared with the product's: each proposes what the rails allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.sampler import SamplerProposer
from bench.searches import variants
from bench.searches.forest import Forest
from bench.searches.in_flight import InFlight
from bench.searches.variants import Interleaved, SurrogateProposer
from tests.support.memories import RAILS, memory_of

MAKERS: dict[str, Callable[[Rails], Proposer]] = {
    "process": SurrogateProposer,
    "forest": lambda rails: SurrogateProposer(rails, Forest.fit),
    "in flight": lambda rails: InFlight(SamplerProposer(rails), 4),
    "third chance": lambda rails: Interleaved(rails, 3),
    "thompson": lambda rails: SurrogateProposer(rails, worth=variants.thompson),
    "chance to improve": lambda rails: SurrogateProposer(rails, worth=variants.chance_to_improve),
    "mean alone": lambda rails: SurrogateProposer(rails, worth=variants.mean_alone),
    "fixed noise": lambda rails: SurrogateProposer(rails, fit=variants.fixed_noise),
    "one length": lambda rails: SurrogateProposer(rails, fit=variants.one_length),
    "three knobs": lambda rails: SurrogateProposer(rails, knobs=3),
    "no steps": lambda rails: SurrogateProposer(rails, by_steps=False, varied=False),
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_what_it_offers_is_allowed_and_follows_from_the_memory(name: str) -> None:
    memory = memory_of(30)
    offer = MAKERS[name](RAILS).propose(memory)
    checked = RAILS.check(offer.raw, memory.reference, memory.evidence.configs)
    assert checked.verdict.allowed
    assert MAKERS[name](RAILS).propose(memory).raw == offer.raw


class Spy:
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[Memory] = []

    def propose(self, memory: Memory) -> Offer:
        self.seen.append(memory)
        return SamplerProposer(RAILS).propose(memory)


@pytest.mark.parametrize("told", [True, False])
def test_what_is_in_flight_has_no_result_yet(told: bool) -> None:
    spy, memory = Spy(), memory_of(30, failing=0)
    InFlight(spy, 5, told).propose(memory)
    (shown,) = spy.seen
    latest = [one for one in memory.evidence.configs.values() if one.iter > 26]
    assert len(latest) == 4
    for one in latest:
        assert shown.evidence.configs[one.config_hash].scores == {}
        assert one.scores
    assert shown.pending == (tuple(one.config for one in latest) if told else ())


def test_one_in_flight_is_no_delay() -> None:
    memory = replace(memory_of(30), iter=31)
    one_at_a_time = SamplerProposer(RAILS).propose(memory).raw
    assert InFlight(SamplerProposer(RAILS), 1).propose(memory).raw == one_at_a_time
