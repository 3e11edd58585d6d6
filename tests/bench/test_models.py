"""The stand-ins are worth what they are called, and turns are given to whoever earned them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from agent.proposers.base import ProposerError
from agent.proposers.llm.prompt import Prompter
from bench.models.cost import Cost
from bench.models.nights import ALONE, Arm, Nights, one_night
from bench.models.policies import AlwaysAsked
from bench.models.prompt_size import AFTER, memories
from bench.models.stand_ins import Copier, Liar, Oracle, Recorded, Repeater, StandIn, Waster
from bench.models.turns import product, turns
from bench.simulator.made_up import MadeUpWorld
from tests.support.memories import RAILS, fresh_memory, raw, remember


class Anywhere(MadeUpWorld):
    """Of which nobody asks how good its best config is: that takes a search of its own."""

    best = 3.0


WORLD = Anywhere()


def gain(model: StandIn) -> float:
    """What its first proposal truly gains."""
    memory = fresh_memory()
    offer = model.propose(memory)
    config = RAILS.check(offer.raw, memory.reference).config
    assert config is not None
    before, after = WORLD.truth(memory.reference), WORLD.truth(config)
    assert before is not None
    assert after is not None
    return before - after


def test_stand_ins_are_worth_what_they_are_called() -> None:
    assert gain(Oracle(RAILS, WORLD)) > 0.1
    assert gain(Liar(RAILS, WORLD)) < -0.1
    assert abs(gain(Waster(RAILS, WORLD))) < 0.01


def test_a_repeater_is_refused_from_its_second_turn_on() -> None:
    memory = fresh_memory()
    repeater = Repeater(RAILS, latency_s=2)
    said = json.loads(repeater.propose(memory).raw)["changes"]
    with pytest.raises(ProposerError) as raised:
        repeater.propose(remember(memory, said, 3.9))
    rails = [attempt.verdict and attempt.verdict.rail for attempt in raised.value.attempts]
    assert rails == ["novelty"] * 3


def test_a_copier_says_the_example_of_the_prompt() -> None:
    memory = fresh_memory()
    offer = Copier(RAILS).propose(memory, {"lr": 0.002})
    prompt = Prompter(RAILS.budget).prompt(memory, {"lr": 0.002})
    assert offer.raw in prompt.messages[1].content


def test_replies_that_were_recorded_are_said_again() -> None:
    good, bad = raw({"lr": 0.004}), raw({"lr": 99})
    assert Recorded(RAILS, [good]).propose(fresh_memory()).raw == good
    with pytest.raises(ProposerError):
        Recorded(RAILS, [bad]).propose(fresh_memory())


def test_a_model_that_is_never_kept_has_what_it_is_lent_and_a_good_one_most() -> None:
    lent = [turns((0.0, 0.1), product, seed) for seed in range(20)]
    assert lent == [5] * 20, "one in twenty of ninety"
    assert fmean(turns((0.3, 0.1), product, seed) for seed in range(50)) > 40


def test_what_replies_take_is_time_that_the_search_does_not_have() -> None:
    alone = one_night(WORLD, 1, None, iterations=15)
    told = one_night(
        WORLD,
        1,
        lambda rails: Repeater(rails, latency_s=1e6),
        AlwaysAsked,
        time_s=alone.time_s,
        iterations=15,
    )
    assert told.time_s > 3e6
    assert told.gain_in_time == 0
    assert (alone.turns, told.turns) == (0, 15)


def test_nights_that_were_kept_are_not_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "nights.jsonl"
    first = Nights(WORLD, 1.0, kept, iterations=12)
    oracle = Arm("oracle", ALONE.policy)
    told = first.of(oracle, range(2))
    lines = kept.read_text()
    assert len(lines.splitlines()) == 4, "each seed's night alone, and the one with the oracle"
    assert Nights(WORLD, 1.0, kept, iterations=12).of(oracle, range(2)) == told
    assert kept.read_text() == lines


def test_a_cost_is_of_the_sampler_s_gain() -> None:
    cost = Cost.of([0.9, 1.8, 0.9, 1.8], [1.0, 2.0, 1.0, 2.0])
    assert cost.mean == pytest.approx(0.1)
    assert cost.lo == pytest.approx(cost.hi) == pytest.approx(0.1)


def test_the_demo_s_memories_are_those_of_its_iterations() -> None:
    assert [memory.iter - 1 for memory in memories()] == list(AFTER)
