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
from agent.proposers.informed import InformedProposer
from agent.proposers.sampler import SamplerProposer
from agent.proposers.uniform import RandomProposer
from bench.searches.earlier_nights import Told, earlier, misleading
from bench.searches.evolution import EvolutionProposer
from bench.searches.forest import Forest
from bench.searches.in_flight import InFlight
from bench.searches.library_samplers import (
    OptunaProposer,
    SobolProposer,
    gaussian_process,
    univariate_tpe,
)
from bench.searches.races import (
    OtherSeeds,
    PatientLoop,
    RaceAgain,
    RailsAgain,
    RememberingExecutor,
    ShortLooks,
    ocba,
    top_two,
)
from bench.searches.smac_search import SmacProposer
from bench.searches.trust_region import TrustRegion
from bench.searches.variants import (
    Interleaved,
    SurrogateProposer,
    chance_to_improve,
    fixed_noise,
    mean_alone,
    one_length,
    thompson,
)
from bench.searches.wide import Wide, ranked_share
from bench.simulator.night import THE_PRODUCTS, Night, Parts, night
from bench.simulator.world import World, leaves_curves
from trajectory.proposals import ProposerRecord
from trajectory.rules import Rules


@dataclass(frozen=True, slots=True)
class Search:
    """A way of searching."""

    make: Callable[[Rails], Proposer]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The campaign's that are not to be the product's defaults."""
    whole_menu: bool = False
    """Whether a proposal may turn every knob."""
    parts: Parts = THE_PRODUCTS
    """Of the loop, where it is not the proposer that is done otherwise."""
    told: Told | None = None
    """What of earlier nights the proposer is shown."""
    rules: Rules | None = None
    """Of the judge, where not those that all are compared with."""
    needs_curves: bool = False
    """Whether it is another search only where runs leave curves."""
    by_name_only: bool = False
    """Whether it is left out where none is named: it differs from another in one detail."""
    within_limits: bool = True
    """Whether an ask takes at most 60 ms at 100 configs and 200 ms at 10,000."""

    def chosen(self, menu: ProxyMenu) -> dict[str, Any]:
        """The settings of a campaign with this menu."""
        every = {"max_changes": len(menu.knobs)} if self.whole_menu else {}
        return every | dict(self.settings)

    def differs_in(self, world: World) -> bool:
        """Whether a night of it there is another than one of the search it is a variant of."""
        return not self.needs_curves or leaves_curves(world)

    def night(
        self,
        world: World,
        *,
        seed: int,
        iterations: int,
        rules: Rules | None = None,
        runs: int | None = None,
    ) -> Night:
        """One night of it; see :func:`bench.simulator.night.night`."""
        priors = () if self.told is None else self.told(world, seed)

        def make(rails: Rails) -> Proposer:
            proposer = self.make(rails)
            return InformedProposer(proposer, priors) if priors else proposer

        return night(
            world,
            make,
            seed=seed,
            iterations=iterations,
            rules=self.rules or rules,
            settings=self.chosen(world.menu),
            runs=runs,
            parts=self.parts,
        )


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


RE_RACES = Parts(rails=RailsAgain, loop=PatientLoop, executor=RememberingExecutor)
OTHER_SEEDS = Parts(campaign=OtherSeeds)
SHORT_LOOKS = Parts(executor=ShortLooks)


def _process(**done: Any) -> Search:
    """A process with one thing done otherwise."""
    return Search(lambda rails: SurrogateProposer(rails, **done), by_name_only=True)


def _wide(**done: Any) -> Search:
    """The same of a search near and far."""
    return Search(lambda rails: Wide(rails, **done), whole_menu=True, by_name_only=True)


SEARCHES: dict[str, Search] = {
    "random": Search(GlobalRandom, whole_menu=True),
    "uniform": Search(RandomProposer),
    "uniform, Sobol": Search(SobolProposer),
    "uniform, no pruning": Search(RandomProposer, {"prune": False}, needs_curves=True),
    "uniform, short looks": Search(RandomProposer, parts=SHORT_LOOKS, needs_curves=True),
    "uniform, other seeds": Search(RandomProposer, parts=OTHER_SEEDS),
    "uniform, top-two": Search(
        lambda rails: RaceAgain(rails, RandomProposer(rails), top_two), parts=RE_RACES
    ),
    "uniform, OCBA": Search(
        lambda rails: RaceAgain(rails, RandomProposer(rails), ocba), parts=RE_RACES
    ),
    "sampler": Search(SamplerProposer),
    "sampler, no pruning": Search(SamplerProposer, {"prune": False}, needs_curves=True),
    "sampler, short looks": Search(SamplerProposer, parts=SHORT_LOOKS, needs_curves=True),
    "sampler, other seeds": Search(SamplerProposer, parts=OTHER_SEEDS, by_name_only=True),
    "sampler, top-two": Search(
        lambda rails: RaceAgain(rails, SamplerProposer(rails), top_two), parts=RE_RACES
    ),
    "sampler, OCBA": Search(
        lambda rails: RaceAgain(rails, SamplerProposer(rails), ocba),
        parts=RE_RACES,
        by_name_only=True,
    ),
    "sampler, a prior": Search(SamplerProposer, told=earlier),
    "sampler, a misleading prior": Search(SamplerProposer, told=misleading, by_name_only=True),
    "sampler, 5 knobs": Search(SamplerProposer, {"max_changes": 5}, by_name_only=True),
    "sampler, whole menu": Search(SamplerProposer, whole_menu=True, by_name_only=True),
    "TPE, each knob alone": Search(
        lambda rails: OptunaProposer(rails, univariate_tpe), whole_menu=True, by_name_only=True
    ),
    "CatCMA": Search(EvolutionProposer, whole_menu=True),
    "trust region": Search(TrustRegion, whole_menu=True),
    "trust region, Thompson": Search(
        lambda rails: TrustRegion(rails, worth=thompson), whole_menu=True, by_name_only=True
    ),
    "wide": Search(Wide, whole_menu=True),
    "wide, a fifth chance": _wide(chance=0.2),
    "wide, chance alone": _wide(chance=1.0),
    "wide, about the reference": _wide(best=False),
    "wide, a quarter far": _wide(far=0.25),
    "wide, ranked": _wide(share=ranked_share),
    "wide, one length": _wide(fit=one_length),
    "process": Search(SurrogateProposer),
    "process, 3 knobs by chance": _process(knobs=3),
    "process, 5 knobs by chance": _process(knobs=5),
    "process, a third chance": Search(lambda rails: Interleaved(rails, 3)),
    "process, no steps nor elites": _process(by_steps=False, varied=False),
    "process, no elites": _process(towards_elites=False),
    "process, Thompson": _process(worth=thompson),
    "process, chance to improve": _process(worth=chance_to_improve),
    "process, mean alone": _process(worth=mean_alone),
    "process, noise not learned": _process(fit=fixed_noise),
    "process, one length": _process(fit=one_length),
    "process, 4 in flight": Search(
        lambda rails: InFlight(SurrogateProposer(rails), 4), by_name_only=True
    ),
    "process, 16 in flight": Search(
        lambda rails: InFlight(SurrogateProposer(rails), 16), by_name_only=True
    ),
    "4 in flight": Search(lambda rails: InFlight(SamplerProposer(rails), 4)),
    "16 in flight": Search(lambda rails: InFlight(SamplerProposer(rails), 16)),
    "16 in flight, untold": Search(
        lambda rails: InFlight(SamplerProposer(rails), 16, told=False), by_name_only=True
    ),
    "forest": Search(lambda rails: SurrogateProposer(rails, Forest.fit), within_limits=False),
    "Optuna's process": Search(
        lambda rails: OptunaProposer(rails, gaussian_process),
        whole_menu=True,
        within_limits=False,
    ),
    "SMAC": Search(SmacProposer, whole_menu=True, within_limits=False),
}
"""By name. *In flight* are variants of the sampler."""
