"""The sampler over the menu, and chance over the menu."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from agent.menu.files import ProxyMenu, parse_menu
from agent.menu.rails import Rails
from agent.proposers.base import Memory, Proposer, ProposerError
from agent.proposers.sampler import STARTUP, SamplerProposer
from agent.proposers.surrogate.space import Space
from agent.proposers.uniform import RandomProposer
from autoresearch.values import Scalar
from tests.support.memories import MENU, RAILS, fresh_memory, memory_of, remember
from trainer.spec import Budget, Config


def changes(proposer: Proposer, memory: Memory) -> dict[str, Scalar]:
    found: dict[str, Scalar] = json.loads(proposer.propose(memory).raw)["changes"]
    return found


def reason(proposer: Proposer, memory: Memory) -> str:
    return str(json.loads(proposer.propose(memory).raw)["reason"])


@pytest.mark.parametrize("kind", [SamplerProposer, RandomProposer])
@pytest.mark.parametrize("iterations", [0, 30])
def test_a_newborn_proposer_offers_what_a_long_lived_one_does(
    kind: type[SamplerProposer | RandomProposer], iterations: int
) -> None:
    long_lived = kind(RAILS)
    memory = fresh_memory()
    while memory.iter <= iterations:
        memory = remember(memory, changes(long_lived, memory), 3.9 - 0.001 * memory.iter)
    assert long_lived.propose(memory).raw == kind(RAILS).propose(memory).raw


def test_another_process_offers_the_same() -> None:
    script = (
        "from tests.support.memories import *\n"
        "from agent.proposers.sampler import SamplerProposer\n"
        "print(SamplerProposer(RAILS).propose(memory_of(40)).raw, end='')"
    )
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert other.stdout == SamplerProposer(RAILS).propose(memory_of(40)).raw


def test_seed_and_iteration_both_matter() -> None:
    sampler, memory = SamplerProposer(RAILS), memory_of(30)
    offers = {
        sampler.propose(one).raw
        for one in (memory, replace(memory, seed=8), replace(memory, iter=memory.iter + 1))
    }
    assert len(offers) == 3


def test_chance_rules_until_enough_is_measured() -> None:
    sampler = SamplerProposer(RAILS)
    assert f"1 of {STARTUP} configs" in reason(sampler, fresh_memory())
    memory = memory_of(STARTUP - 1, failing=0)
    assert re.fullmatch(
        rf"[+-]0\.\d{{3}} ± 0\.\d{{3}} bpb expected by {STARTUP} measured configs",
        reason(sampler, memory),
    )
    assert f"drawn uniformly: 1 of {STARTUP}" in reason(sampler, memory_of(30, failing=1))


def test_no_more_knobs_than_allowed_are_turned_and_all_of_them_some_time() -> None:
    sampler, memory = SamplerProposer(RAILS), memory_of(40)
    turned: Counter[str] = Counter()
    for iteration in range(41, 121):
        found = changes(sampler, replace(memory, iter=iteration))
        assert 1 <= len(found) <= 3
        turned.update(found.keys())
    assert set(turned) == set(MENU.knobs)


def test_with_every_knob_free_it_turns_many_at_once() -> None:
    rails = Rails(MENU, budget=Budget(), max_changes=99)
    memory = replace(memory_of(40), max_changes=99)
    sampler = SamplerProposer(rails)
    sizes = [len(changes(sampler, replace(memory, iter=n))) for n in range(41, 51)]
    assert max(sizes) > 3


def test_it_learns_where_the_good_values_are() -> None:
    rng, memory = Random(0), fresh_memory()
    while memory.iter <= 60:
        rate = float(MENU.domains["lr"].draw(rng))
        score = 3.7 + 0.3 * abs(math.log10(rate / 6e-3)) + rng.gauss(0, 0.02)
        memory = remember(memory, {"lr": rate, "lr_warmup": rng.randint(0, 30)}, score)

    def off(proposer: Proposer) -> float:
        found = [changes(proposer, replace(memory, iter=n)) for n in range(61, 181)]
        rates = [float(one["lr"]) for one in found if "lr" in one]
        return fmean(abs(math.log10(rate / 6e-3)) for rate in rates)

    assert off(SamplerProposer(RAILS)) < 0.5 * off(RandomProposer(RAILS))


def test_what_fails_is_kept_away_from() -> None:
    """High rates diverge; what is left of them is the best there is."""
    rng, memory = Random(0), fresh_memory()
    while memory.iter <= 60:
        rate = float(MENU.domains["lr"].draw(rng))
        score = None if rate > 6e-3 else 3.7 - 0.3 * math.log10(rate / 1e-4)
        memory = remember(memory, {"lr": rate, "lr_warmup": rng.randint(0, 30)}, score)

    def too_high(proposer: Proposer) -> int:
        found = [changes(proposer, replace(memory, iter=n)) for n in range(61, 121)]
        return sum(float(one.get("lr", 0)) > 6e-3 for one in found)

    assert too_high(SamplerProposer(RAILS)) < 0.5 * too_high(RandomProposer(RAILS))


@pytest.mark.parametrize("kind", [SamplerProposer, RandomProposer])
def test_what_is_being_raced_meanwhile_is_not_offered_again(
    kind: type[SamplerProposer | RandomProposer],
) -> None:
    proposer, memory = kind(RAILS), memory_of(30)
    for _ in range(16):
        config = MENU.apply(memory.reference, changes(proposer, memory))
        assert config not in memory.pending
        memory = replace(memory, pending=(*memory.pending, config))


def test_candidates_in_flight_spread_out() -> None:
    """Told of those before it, each looks elsewhere."""
    sampler, memory = SamplerProposer(RAILS), memory_of(60)
    space = Space.of(MENU.domains)

    def spread(*, told: bool) -> float:
        pending: tuple[Config, ...] = ()
        for number in range(8):
            shown = replace(memory, pending=pending if told else (), iter=61 + number)
            pending += (MENU.apply(memory.reference, changes(sampler, shown)),)
        points = space.points([MENU.knob_values(config) for config in pending])
        return fmean(float(((a - b) ** 2).sum()) for a in points for b in points)

    assert spread(told=True) > spread(told=False)


def test_nothing_tried_is_offered_again() -> None:
    sampler, memory = SamplerProposer(RAILS), fresh_memory()
    for _ in range(60):
        found = changes(sampler, memory)
        config = MENU.apply(memory.reference, found)
        assert config.config_hash not in memory.evidence.configs
        memory = remember(memory, found, 3.9)
    assert len(memory.evidence.configs) == 61


TWO = """
name = "two"
knobs.norm = { type = "choice", choices = ["layernorm", "rmsnorm"], default = "layernorm" }
knobs.activation = { type = "choice", choices = ["gelu", "swiglu"], default = "gelu" }
"""


def small_menu() -> ProxyMenu:
    fixed = {
        name: value
        for name, value in MENU.baseline.canonical().items()
        if name not in {"norm", "activation"}
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in fixed.items()]
    return parse_menu(TWO + "[constants]\n" + "\n".join(lines), "two")


@pytest.mark.parametrize("kind", [SamplerProposer, RandomProposer])
def test_every_config_of_a_small_menu_is_found_and_then_it_says_so(
    kind: type[SamplerProposer | RandomProposer],
) -> None:
    menu = small_menu()
    proposer = kind(Rails(menu, budget=Budget()))
    memory = fresh_memory(menu)
    for _ in range(3):
        memory = remember(memory, changes(proposer, memory), 3.9)
    with pytest.raises(ProposerError, match=r"menu seems exhausted; widen its knobs or raise"):
        proposer.propose(memory)
