"""Where runs are spent, done otherwise."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.contrasts import Contrast
from agent.proposers.uniform import RandomProposer
from bench.searches.races import (
    EVERY,
    OtherSeeds,
    PatientLoop,
    RaceAgain,
    RailsAgain,
    RememberingExecutor,
    ShortLooks,
    ocba,
    patient,
    top_two,
)
from bench.simulator.night import Parts, night
from bench.simulator.searches import SEARCHES
from tests.support.memories import MENU, memory_of
from tests.support.trials import trial_spec
from tests.support.worlds import RateWorld
from trainer.spec import Budget, PruneRule, TrialSpec
from trajectory.evidence import ConfigEvidence
from trajectory.proposals import ProposerRecord
from trajectory.rules import Rules

AGAIN = RailsAgain(MENU, budget=Budget())


def known(delta: float, stderr: float, runs: int, name: str) -> tuple[ConfigEvidence, Contrast]:
    entry = ConfigEvidence(MENU.baseline, name, 1, scores=dict.fromkeys(range(runs), 3.0))
    return entry, Contrast(delta, stderr, runs)


def test_the_challenger_is_whoever_a_draw_says_is_best() -> None:
    both = [
        known(-0.1, 0.05, 2, "better"),
        known(0.0, 0.05, 2, "level"),
        known(0.3, 0.01, 2, "bad"),
    ]
    drawn = Counter(top_two(Random(seed), both).config_hash for seed in range(300))
    assert drawn["better"] > drawn["level"] > 5
    assert drawn["bad"] == 0


def test_a_run_goes_where_it_decides_most() -> None:
    near, far, often = (
        known(-0.01, 1, 2, "near"),
        known(-0.1, 1, 2, "far"),
        known(0.01, 1, 9, "often"),
    )
    assert ocba(Random(0), [far, near, often]).config_hash == "near"


def test_a_config_that_was_tried_is_raced_again_and_every_fourth_time() -> None:
    memory = memory_of(30, failing=0)
    proposer = RaceAgain(AGAIN, RandomProposer(AGAIN), top_two)
    hashes = []
    for iteration in range(31, 31 + 2 * EVERY):
        offer = proposer.propose(replace(memory, iter=iteration))
        checked = AGAIN.check(offer.raw, memory.reference, memory.evidence.configs)
        assert checked.config is not None
        hashes.append(checked.config.config_hash in memory.evidence.configs)
    assert hashes == [(iteration % EVERY) == 0 for iteration in range(31, 31 + 2 * EVERY)]


def test_rails_of_others_refuse_what_was_tried() -> None:
    memory = memory_of(10, failing=0)
    tried = list(memory.evidence.configs.values())[1]
    raw = json.dumps({"changes": tried.changes, "reason": "a new idea"})
    for rails in (AGAIN, Rails(MENU, budget=Budget())):
        verdict = rails.check(raw, memory.reference, memory.evidence.configs).verdict
        assert verdict.rail == "novelty"


def test_a_second_race_is_longer_and_no_cheaper_to_win() -> None:
    rules = Rules()
    again = patient(rules)
    bars = [one.z_keep / one.max_runs**0.5 for one in (rules, again)]
    assert bars[0] == pytest.approx(bars[1])
    assert again.max_runs == 2 * rules.max_runs


class TwiceTheSame:
    """Proposes a rate that is as good, and then that again."""

    def propose(self, memory: Memory) -> Offer:
        reason = "raced again" if memory.iter > 1 else "first"
        changes = {"lr": 1.001e-3}
        raw = json.dumps({"changes": changes, "reason": reason})
        return Offer(raw, ProposerRecord(kind="scripted"))


def test_what_ran_before_is_no_run_again() -> None:
    """Of the second race only the pairs that the first did not have are run."""

    def scripted(_rails: Rails) -> Proposer:
        return TwiceTheSame()

    parts = Parts(rails=RailsAgain, loop=PatientLoop, executor=RememberingExecutor)
    found = night(RateWorld(0.05), scripted, seed=4, iterations=2, parts=parts)
    first, second = (found.stages[n].runs - found.stages[n - 1].runs for n in (1, 2))
    assert found.keeps == 0
    assert found.refused == 0
    assert 0 < second <= 2 * (patient(Rules()).max_runs - first)
    assert found.stages[2].train_s - found.stages[1].train_s == pytest.approx(2.0 * second)


def test_races_begin_at_another_seed_each() -> None:
    seen: list[TrialSpec] = []

    class Spy(RememberingExecutor):
        def submit(self, spec, trial_dir):  # type: ignore[no-untyped-def]
            seen.append(spec)
            return super().submit(spec, trial_dir)

    parts = Parts(campaign=OtherSeeds, executor=Spy)
    night(RateWorld(0.05), RandomProposer, seed=2, iterations=3, parts=parts)
    baseline = MENU.baseline.config_hash
    firsts = list(
        dict.fromkeys(one.config.config_hash for one in seen if one.config.config_hash != baseline)
    )
    begins = [
        next(one.seed for one in seen if one.config.config_hash == candidate)
        for candidate in firsts
    ]
    assert begins == [2000, 2001, 2002]


def test_a_short_look_stops_what_the_product_lets_run(tmp_path: Path) -> None:
    rule = PruneRule(at_step=20, window=5, max_loss=4.5)
    world = RateWorld(0.01, curves=True)
    spec = trial_spec(
        config=MENU.apply(MENU.baseline, {"lr": 1.5e-3}), trial_id="t000001", prune=rule
    )
    (_, curve) = world.outcome(spec)
    level = sum(point.loss for point in curve[15:20]) / 5
    spec = spec.model_copy(update={"prune": rule.model_copy(update={"max_loss": level + 0.1})})
    statuses = []
    for number, kind in enumerate((RememberingExecutor, ShortLooks)):
        with kind(world) as executor:
            result = executor.submit(spec, tmp_path / str(number)).result().result
            statuses.append(getattr(result, "status", "ok"))
    assert statuses == ["ok", "pruned"]


@pytest.mark.parametrize("who", ["uniform, top-two", "uniform, OCBA", "uniform, other seeds"])
def test_a_night_of_each_ends(who: str) -> None:
    found = SEARCHES[who].night(RateWorld(0.05), seed=1, iterations=16)
    assert found.stages[-1].iteration == 16
    assert found.refused == 0
