"""Who searches: proposers by name, each with the campaign's settings that it is meant for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.draws import Draw, Edits, offered
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
from bench.searches.tpe import TpeProposer
from bench.searches.trust_region import TrustRegion
from bench.searches.variants import (
    Interleaved,
    SurrogateProposer,
    chance_to_improve,
    draws_alone,
    expected_share,
    fixed_noise,
    mean_alone,
    one_length,
    ranked_share,
    thompson,
)
from bench.simulator.night import THE_PRODUCTS, Night, Parts, night
from bench.simulator.world import World, leaves_curves
from trajectory.rules import Rules


@dataclass(frozen=True, slots=True)
class Search:
    """A way of searching."""

    make: Callable[[Rails], Proposer]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The campaign's that are not to be the product's defaults."""
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
            settings=dict(self.settings),
            runs=runs,
            parts=self.parts,
        )


@dataclass(frozen=True, slots=True)
class GlobalRandom:
    """Every knob uniformly over its scale, whatever the reference: the floor of all searches."""

    rails: Rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("everywhere", self.rails, memory, lambda rng: self._draws(rng, memory), 2000)

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        edits = Edits.of(memory)
        while True:
            yield Draw(edits.whole(rng), "drawn uniformly over the menu")


RE_RACES = Parts(rails=RailsAgain, loop=PatientLoop, executor=RememberingExecutor)
OTHER_SEEDS = Parts(campaign=OtherSeeds)
SHORT_LOOKS = Parts(executor=ShortLooks)


def _process(**done: Any) -> Search:
    """A process with one thing done otherwise."""
    return Search(lambda rails: SurrogateProposer(rails, **done), by_name_only=True)


def _sampler(**done: Any) -> Search:
    """The product's sampler with one thing done otherwise."""
    return Search(lambda rails: SamplerProposer(rails, **done), by_name_only=True)


SEARCHES: dict[str, Search] = {
    "random": Search(GlobalRandom),
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
    "sampler, 3 knobs": Search(SamplerProposer, {"max_changes": 3}, by_name_only=True),
    "sampler, a third chance": _sampler(chance=1 / 3),
    "sampler, a fifth chance": _sampler(chance=0.2),
    "sampler, chance alone": _sampler(chance=1.0),
    "sampler, far by rank": _sampler(far=ranked_share),
    "sampler, no margin": _sampler(margin=0.0),
    "sampler, half a margin": _sampler(margin=0.5),
    "sampler, as before": _sampler(margin=0.0, far=expected_share, candidates=draws_alone),
    "sampler, a margin and far as before": _sampler(
        margin=1.0, far=expected_share, candidates=draws_alone
    ),
    "sampler, draws alone": _sampler(candidates=draws_alone),
    "sampler, one length": _sampler(fit=one_length),
    "TPE": Search(TpeProposer, {"max_changes": 3}),
    "TPE, 5 knobs": Search(TpeProposer, {"max_changes": 5}, by_name_only=True),
    "TPE, whole menu": Search(TpeProposer, by_name_only=True),
    "TPE, each knob alone": Search(
        lambda rails: OptunaProposer(rails, univariate_tpe), by_name_only=True
    ),
    "CatCMA": Search(EvolutionProposer),
    "trust region": Search(TrustRegion),
    "trust region, Thompson": Search(
        lambda rails: TrustRegion(rails, worth=thompson), by_name_only=True
    ),
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
        within_limits=False,
    ),
    "SMAC": Search(SmacProposer, within_limits=False),
}
"""By name. *In flight* are variants of the sampler."""
