"""Who searches: proposers by name, each with the campaign's settings that it is meant for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.menu.files import ProxyMenu
from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.draws import Draw, against_reference, exhausted, first_allowed, rng_for
from agent.proposers.sampler import SamplerProposer
from agent.proposers.uniform import RandomProposer
from bench.searches.forest import Forest
from bench.searches.in_flight import InFlight
from bench.searches.variants import (
    Interleaved,
    SurrogateProposer,
    chance_to_improve,
    fixed_noise,
    mean_alone,
    one_length,
    thompson,
)
from trajectory.proposals import ProposerRecord


@dataclass(frozen=True, slots=True)
class Search:
    """A way of searching."""

    make: Callable[[Rails], Proposer]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The campaign's that are not to be the product's defaults."""
    whole_menu: bool = False
    """Whether a proposal may turn every knob."""

    def chosen(self, menu: ProxyMenu) -> dict[str, Any]:
        """The settings of a campaign with this menu."""
        every = {"max_changes": len(menu.knobs)} if self.whole_menu else {}
        return every | dict(self.settings)


class GlobalRandom:
    """Every knob uniformly over its scale, whatever the reference: the floor of all searches."""

    DRAWS = 2000

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the menu seems exhausted.
        """
        began = time.monotonic()
        draw = first_allowed(self._rails, memory, self._draws(memory), self.DRAWS)
        if draw is None:
            raise exhausted(memory, self.DRAWS)
        return Offer(draw.raw, ProposerRecord(kind="random", latency_s=time.monotonic() - began))

    def _draws(self, memory: Memory) -> Iterator[Draw]:
        rng = rng_for("everywhere", memory)
        while True:
            values = {
                name: domain.rounded(domain.draw(rng))
                for name, domain in memory.menu.domains.items()
            }
            yield Draw(against_reference(memory, values), "drawn uniformly over the menu")


SEARCHES: dict[str, Search] = {
    "random": Search(GlobalRandom, whole_menu=True),
    "uniform": Search(RandomProposer),
    "sampler": Search(SamplerProposer),
    "sampler, no pruning": Search(SamplerProposer, {"prune": False}),
    "sampler, 5 knobs": Search(SamplerProposer, {"max_changes": 5}),
    "sampler, whole menu": Search(SamplerProposer, whole_menu=True),
    "process": Search(SurrogateProposer),
    "process, 3 knobs by chance": Search(lambda rails: SurrogateProposer(rails, knobs=3)),
    "process, 5 knobs by chance": Search(lambda rails: SurrogateProposer(rails, knobs=5)),
    "process, a third chance": Search(lambda rails: Interleaved(rails, 3)),
    "process, no steps nor elites": Search(
        lambda rails: SurrogateProposer(rails, by_steps=False, varied=False)
    ),
    "process, no elites": Search(lambda rails: SurrogateProposer(rails, towards_elites=False)),
    "process, Thompson": Search(lambda rails: SurrogateProposer(rails, worth=thompson)),
    "process, chance to improve": Search(
        lambda rails: SurrogateProposer(rails, worth=chance_to_improve)
    ),
    "process, mean alone": Search(lambda rails: SurrogateProposer(rails, worth=mean_alone)),
    "process, noise not learned": Search(lambda rails: SurrogateProposer(rails, fixed_noise)),
    "process, one length": Search(lambda rails: SurrogateProposer(rails, one_length)),
    "forest": Search(lambda rails: SurrogateProposer(rails, Forest.fit)),
    "process, 16 in flight": Search(lambda rails: InFlight(SurrogateProposer(rails), 16)),
    "4 in flight": Search(lambda rails: InFlight(SamplerProposer(rails), 4)),
    "16 in flight": Search(lambda rails: InFlight(SamplerProposer(rails), 16)),
    "16 in flight, untold": Search(lambda rails: InFlight(SamplerProposer(rails), 16, told=False)),
}
