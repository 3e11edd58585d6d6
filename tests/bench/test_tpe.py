"""Test Optuna's TPE, which the sampler is compared with."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace

import optuna
import pytest

from agent.menu.rails import Rails
from bench.search.tpe import TpeProposer, study_of, whom_to_tell
from tests.support.memories import MENU, RAILS, memory_of
from trainer.spec import Budget


@pytest.mark.parametrize("most", [3, 99])
def test_it_turns_no_more_knobs_than_allowed(most: int) -> None:
    rails = Rails(MENU, budget=Budget(), max_changes=most)
    memory = replace(memory_of(40), max_changes=most)
    sizes = [
        len(json.loads(TpeProposer(rails).propose(replace(memory, iter=n)).raw)["changes"])
        for n in range(41, 61)
    ]
    assert max(sizes) <= most
    assert (max(sizes) > 3) == (most > 3)


def test_the_study_is_told_what_is_being_raced_as_running() -> None:
    memory = memory_of(20)
    pending = MENU.apply(memory.reference, {"lr": 5.3e-3})
    trials = study_of(replace(memory, pending=(pending,)), whom_to_tell(memory)).get_trials()
    (running,) = [trial for trial in trials if trial.state.name == "RUNNING"]
    assert running.params["lr"] == pytest.approx(5.3e-3)
    assert running.value is None


def test_what_is_told_is_not_copied() -> None:
    """Optuna's in-memory study deep-copies trials, which would take half of an ask's time."""
    memory = memory_of(20)
    study = study_of(memory, whom_to_tell(memory))
    first, *others = study.get_trials(deepcopy=False)
    (name, distribution), *_ = first.distributions.items()
    assert all(trial.distributions[name] is distribution for trial in others)
    assert [trial.number for trial in (first, *others)] == list(range(len(others) + 1))


def test_a_config_that_raced_counts_once_by_its_mean_and_a_failure_by_none() -> None:
    memory = memory_of(20, failing=0.3)
    told = whom_to_tell(memory)
    trials = study_of(memory, told).get_trials()
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
        TpeProposer(RAILS).propose(memory_of(30))
    finally:
        optuna.logging.disable_propagation()
    assert optuna.logging.get_verbosity() == before
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []
