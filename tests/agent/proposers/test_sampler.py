"""TPE over the menu, and chance over the menu."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean

import optuna
import pytest

from agent.menu.files import ProxyMenu, parse_menu
from agent.menu.rails import Rails
from agent.proposers.base import Memory, Proposer, ProposerError
from agent.proposers.sampler import BEST, LATEST, STARTUP, SamplerProposer, Told, told_study
from agent.proposers.uniform import RandomProposer
from autoresearch.values import Scalar
from tests.support.memories import MENU, RAILS, fresh_memory, memory_of, remember
from tests.support.rows import failed as failed_trial
from trainer.spec import Budget
from trajectory.evidence import ConfigEvidence, Evidence, Tally


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
    assert "1 of 10 configs" in reason(sampler, fresh_memory())
    memory = memory_of(STARTUP - 1, failing=0)
    assert reason(sampler, memory).startswith(f"TPE over {STARTUP} measured")
    assert "drawn uniformly: 1 of 10" in reason(sampler, memory_of(30, failing=1))


def test_no_more_knobs_than_allowed_are_turned_and_all_of_them_some_time() -> None:
    sampler, memory = SamplerProposer(RAILS), memory_of(40)
    turned: Counter[str] = Counter()
    for iteration in range(41, 121):
        found = changes(sampler, replace(memory, iter=iteration))
        assert 1 <= len(found) <= 3
        turned.update(found.keys())
    assert set(turned) == set(MENU.knobs)


def test_with_every_knob_free_it_is_tpe_over_the_whole_menu() -> None:
    rails = Rails(MENU, budget=Budget(), max_changes=99)
    memory = replace(memory_of(40), max_changes=99)
    found = changes(SamplerProposer(rails), memory)
    assert len(found) > 3


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


@pytest.mark.parametrize("kind", [SamplerProposer, RandomProposer])
def test_what_is_being_raced_meanwhile_is_not_offered_again(
    kind: type[SamplerProposer | RandomProposer],
) -> None:
    proposer, memory = kind(RAILS), memory_of(30)
    for _ in range(16):
        config = MENU.apply(memory.reference, changes(proposer, memory))
        assert config not in memory.pending
        memory = replace(memory, pending=(*memory.pending, config))


def test_the_study_is_told_what_is_being_raced_as_running() -> None:
    memory = memory_of(20)
    pending = MENU.apply(memory.reference, {"lr": 5.3e-3})
    trials = told_study(replace(memory, pending=(pending,)), Told.of(memory.evidence)).get_trials()
    (running,) = [trial for trial in trials if trial.state.name == "RUNNING"]
    assert running.params["lr"] == pytest.approx(5.3e-3)
    assert running.value is None


def test_what_is_told_is_not_copied() -> None:
    """Optuna's study in memory copies trials to the last choice of a distribution: half an ask."""
    memory = memory_of(20)
    study = told_study(memory, Told.of(memory.evidence))
    first, *others = study.get_trials(deepcopy=False)
    (name, distribution), *_ = first.distributions.items()
    assert all(trial.distributions[name] is distribution for trial in others)
    assert [trial.number for trial in (first, *others)] == list(range(len(others) + 1))


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


# --- what it is told ----------------------------------------------------------------------------


def entry(number: int, scores: dict[int, float], *, failed: bool = False) -> ConfigEvidence:
    config = MENU.baseline.model_copy(update={"lr_warmup": number % 31})
    found = ConfigEvidence(config, f"{number:064x}", number, scores=scores)
    if failed:
        found.failures.append(failed_trial())
    return found


def evidence_of(entries: list[ConfigEvidence]) -> Evidence:
    return Evidence.restore(Tally(iterations=len(entries)), entries)


def test_it_is_told_the_best_and_the_latest_and_no_more() -> None:
    count = 5000
    told = Told.of(evidence_of([entry(n, {0: 3.0 + n / count}) for n in range(count)]))
    numbers = [one.iter for one in told.measured]
    assert numbers == [*range(BEST), *range(count - LATEST, count)]


def test_failures_are_told_without_a_number_and_never_outnumber_results() -> None:
    entries = [entry(n, {0: 3.9}) for n in range(12)]
    entries += [entry(n, {}, failed=True) for n in range(12, 150)]
    # Measured on one seed and failed on another: not a result to be led by.
    entries.append(entry(150, {0: 1.0}, failed=True))
    told = Told.of(evidence_of(entries))
    assert [one.iter for one in told.measured] == list(range(12))
    assert [one.iter for one in told.failed] == list(range(139, 151))


def test_a_config_that_raced_counts_once_by_its_mean_and_a_failure_by_none() -> None:
    memory = memory_of(20, failing=0.3)
    told = Told.of(memory.evidence)
    trials = told_study(memory, told).get_trials()
    assert len(trials) == len(memory.evidence.configs) == len(told.measured) + len(told.failed)
    assert len(told.failed) > 0
    baseline = memory.evidence.configs[MENU.baseline.config_hash]
    assert baseline.n == 5
    assert [trial.value for trial in trials].count(baseline.mean) == 1
    states = Counter((trial.state.name, trial.value is None) for trial in trials)
    assert states == {
        ("COMPLETE", False): len(told.measured),
        ("PRUNED", True): len(told.failed),
    }


def test_optunas_verbosity_is_left_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    before = optuna.logging.get_verbosity()
    optuna.logging.enable_propagation()
    try:
        SamplerProposer(RAILS).propose(memory_of(30))
    finally:
        optuna.logging.disable_propagation()
    assert optuna.logging.get_verbosity() == before
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []
