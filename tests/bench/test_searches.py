"""The searches that are compared with the product's: each proposes what the rails allow."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.sampler import SamplerProposer
from bench.searches import variants
from bench.searches.evolution import SIGMA, Axes, EvolutionProposer
from bench.searches.forest import Forest
from bench.searches.in_flight import InFlight
from bench.searches.library_samplers import OptunaProposer, SobolProposer, univariate_tpe
from bench.searches.tpe import TpeProposer
from bench.searches.trust_region import TrustRegion, reach
from bench.searches.variants import Interleaved, SurrogateProposer
from bench.simulator.searches import SEARCHES
from tests.support.memories import MENU, RAILS, fresh_memory, memory_of, remember
from tests.support.spy import Spy
from trainer.spec import Budget
from trajectory.evidence import ConfigEvidence

ALL_KNOBS = len(MENU.knobs)
WHOLE = Rails(MENU, budget=Budget(), max_changes=ALL_KNOBS)
MAKERS: dict[str, Callable[[Rails], Proposer]] = {
    "CatCMA": EvolutionProposer,
    "Sobol": SobolProposer,
    "TPE, each knob alone": lambda rails: OptunaProposer(rails, univariate_tpe),
    "trust region": TrustRegion,
    "TPE": TpeProposer,
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
    """To whoever is asked first and to whoever was asked all night."""
    memory = replace(memory_of(30), max_changes=ALL_KNOBS)
    offer = MAKERS[name](WHOLE).propose(memory)
    checked = WHOLE.check(offer.raw, memory.reference, memory.evidence.configs)
    assert checked.verdict.allowed
    assert MAKERS[name](WHOLE).propose(memory).raw == offer.raw


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SMAC", "Optuna's process"])
def test_what_asks_for_seconds_asks_all_the_same(name: str) -> None:
    if name == "SMAC":
        pytest.importorskip("smac")
    memory = replace(memory_of(15), max_changes=ALL_KNOBS)
    offer = SEARCHES[name].make(WHOLE).propose(memory)
    assert "chance" not in offer.raw
    assert WHOLE.check(offer.raw, memory.reference, memory.evidence.configs).verdict.allowed


def test_a_strategy_that_went_on_stands_where_one_that_is_made_anew_does() -> None:
    """An evolution's state is had again from what was measured, and depends on it."""

    def offers(sign: int) -> list[str]:
        memory, raws = replace(fresh_memory(), max_changes=ALL_KNOBS), []
        going_on = EvolutionProposer(WHOLE)
        for _ in range(26):
            raws.append(going_on.propose(memory).raw)
            changes = json.loads(raws[-1])["changes"]
            off = abs(math.log10(changes.get("lr", 1e-3) / 1e-2))
            memory = remember(memory, changes, 4.0 + sign * off)
        assert going_on.propose(memory).raw == EvolutionProposer(WHOLE).propose(memory).raw
        return raws

    up, down = offers(1), offers(-1)
    first = [one for one, other in zip(up, down, strict=True) if one == other]
    assert first == up[: len(first)]
    assert 8 < len(first) < 20, "a generation is proposed before anything of it is told"
    assert "generation 2" in up[-1]


@pytest.mark.parametrize("end", ["low", "high"])
def test_an_evolution_steps_as_far_as_it_says_also_from_a_bound(end: str) -> None:
    """There the library's own covariance is zero, and breaks down when it is told."""
    axes, menu = Axes.of(WHOLE.menu), WHOLE.menu
    bounds = {name: getattr(axes.domains[name], end) for name in axes.real}
    strategy = axes.strategy({**menu.knob_values(menu.baseline), **bounds}, 1)
    asked = [strategy.ask() for _ in range(200)]
    moved = np.abs(np.array([one.x for one in asked]) - (end == "high"))
    assert (np.quantile(moved, 0.9, axis=0) > SIGMA).all(), "one in ten, half being beyond"
    strategy.tell([(asked[rank], float(rank)) for rank in range(strategy.population_size)])
    assert np.isfinite(strategy.ask().x).all()


@pytest.mark.parametrize(
    ("actions", "far"),
    [
        ("", 0.4),
        ("k", 0.8),
        ("kk", 0.8),
        ("dddddddd", 0.2),
        ("dddddddk", 0.8),
        ("d" * 40, 0.4),
    ],
)
def test_reach_grows_with_keeps_and_shrinks_without(actions: str, far: float) -> None:
    said = {"k": "keep", "d": "discard"}
    entries = [
        ConfigEvidence(MENU.baseline, str(n), n, action=said[one]) for n, one in enumerate(actions)
    ]
    assert reach(entries) == pytest.approx(far)


@pytest.mark.parametrize("told", [True, False])
def test_what_is_in_flight_has_no_result_yet(told: bool) -> None:
    spy, memory = Spy(RAILS), memory_of(30, failing=0)
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
