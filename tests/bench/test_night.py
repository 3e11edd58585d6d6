"""Check that a simulated night runs the product's campaign and reports its true scores."""

from itertools import pairwise

import pytest

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.draws import RandomProposer
from tests.support.scripted import ScriptedProposer
from tests.support.simulated.night import MakeProposer, night
from tests.support.worlds import RateWorld
from trajectory.rows import Rules


def scripted(*rates: float) -> MakeProposer:
    raws = [f'{{"changes": {{"lr": {rate}}}, "reason": "scripted"}}' for rate in rates]

    def make(_rails: Rails) -> Proposer:
        return ScriptedProposer(raws)

    return make


def test_what_it_keeps_what_it_drops_and_what_it_costs() -> None:
    found = night(RateWorld(), scripted(2e-3, 5e-4, 2.5e-2, 1.0), seed=1, iterations=4)
    truths = [stage.truth for stage in found.stages]
    assert truths == pytest.approx([4.0, 3.69897, 3.69897, 3.69897, 3.69897], abs=1e-4)
    assert (found.keeps, found.false_keeps, found.refused) == (1, 0, 1)
    assert found.failures == {"nonfinite": 1}
    assert found.stages[0].runs == 5, "the baseline's seeds"
    assert found.stages[0].train_s == pytest.approx(10.0)
    runs = [after.runs - before.runs for before, after in pairwise(found.stages)]
    assert runs == [2, 1, 1, 0], "two pairs are enough; worse; failed; refused"
    seconds = [after.train_s - before.train_s for before, after in pairwise(found.stages)]
    assert seconds[2:] == pytest.approx([0.25, 0.0])
    assert found.true_gain == pytest.approx(0.30103, abs=1e-4)


def test_a_night_is_the_same_again_and_another_seed_is_another() -> None:
    world = RateWorld(0.05)
    one, again, other = (
        night(world, RandomProposer, seed=seed, iterations=8) for seed in (3, 3, 4)
    )
    told = {"ask_ms", "seconds"}
    assert one.model_dump(exclude=told) == again.model_dump(exclude=told)
    assert one.stages != other.stages


def test_pruning_saves_time_in_a_world_with_curves() -> None:
    world = RateWorld(0.01, curves=True)
    spent = {
        prune: night(world, scripted(1e-4), seed=1, iterations=1, settings={"prune": prune})
        for prune in (True, False)
    }
    assert spent[True].failures == {"pruned": 1}
    assert spent[False].failures == {}
    assert spent[True].stages[-1].train_s < spent[False].stages[-1].train_s


def test_the_rules_are_those_of_the_product() -> None:
    world = RateWorld(0.05)

    def change_nothing(_rails: Rails) -> Proposer:
        raws = [
            f'{{"changes": {{"grad_clip": {1 + n / 100}}}, "reason": "nothing"}}'
            for n in range(1, 41)
        ]
        return ScriptedProposer(raws)

    loose, strict = (
        night(world, change_nothing, seed=5, iterations=40, rules=rules)
        for rules in (Rules(z_keep=0, max_runs=2, early_stopping_threshold=1), Rules(z_keep=3))
    )
    assert loose.keeps == loose.false_keeps > strict.keeps
    assert loose.true_gain == 0
    assert loose.told_gain is not None
