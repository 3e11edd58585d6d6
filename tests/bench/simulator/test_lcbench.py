"""A world of another's surrogate, with one whose best is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest

from autoresearch.errors import SettingsError
from bench.simulator.encoding import Matrix
from bench.simulator.lcbench import (
    CARRIED,
    CROSS_ENTROPY,
    ENCODING,
    FILE,
    SIGMA,
    SPACE,
    TIME,
    LcbenchWorld,
)
from bench.simulator.worlds import Sources, worlds
from tests.support.trials import trial_spec
from trainer.spec import TrialOk, gpt

BEST = {"lr": 0.01, "n_layer": 4, "d_ff": 700, "lr_min_ratio": 0.0}


def surrogate(rows: Matrix) -> Matrix:
    """The rate, the layers, the units and the dropout matter; none matters alone."""
    _, lr, _, _, layers, units, dropout = rows.T
    loss = 0.2 + (np.log10(lr) + 2) ** 2 + 0.1 * (layers - 4) ** 2 + dropout * 0.3
    loss += (np.log(units / 700) * (0.5 + dropout)) ** 2
    said = np.full((len(rows), 6), np.nan)
    said[:, TIME], said[:, CROSS_ENTROPY] = 10 * layers, loss
    return said


@pytest.fixture(scope="module")
def world() -> LcbenchWorld:
    return LcbenchWorld("made-up", surrogate)


def test_a_score_is_one_and_the_share_that_is_left_to_gain(world: LcbenchWorld) -> None:
    menu = world.menu
    best = gpt(menu.apply(menu.baseline, BEST))
    assert world.truth(gpt(menu.baseline)) == 2.0
    assert world.truth(best) == pytest.approx(world.best, abs=1e-3), "which was looked for"
    half = gpt(menu.apply(menu.baseline, {**BEST, "lr": 0.1, "lr_min_ratio": 0.1}))
    assert 1.1 < world.truth(half) < 2


def test_a_run_is_noisy_and_takes_what_the_surrogate_says(world: LcbenchWorld) -> None:
    config = world.menu.apply(world.menu.baseline, BEST)
    outcomes = [world.outcome(trial_spec(config=config, seed=seed)) for seed in range(200)]
    results = [result for result, _ in outcomes]
    assert all(isinstance(result, TrialOk) and result.train_s == 40.0 for result in results)
    scores = [result.val_bpb for result in results if isinstance(result, TrialOk)]
    assert stdev(scores) == pytest.approx(SIGMA, rel=0.2)
    assert fmean(scores) == pytest.approx(world.truth(gpt(config)), abs=4 * SIGMA / 200**0.5)
    again, curve = world.outcome(trial_spec(config=config, seed=0))
    assert (again, curve) == outcomes[0]


def test_every_knob_of_theirs_stands_for_a_field(world: LcbenchWorld) -> None:
    assert sorted(CARRIED.values()) == sorted(world.menu.knobs)


def test_without_what_reads_it_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(b"")
    (tmp_path / ENCODING).write_text(json.dumps({"OpenML_task_id": {"7": 1}}))
    space = {"hyperparameters": [{"name": "OpenML_task_id", "choices": ["7"]}]}
    (tmp_path / SPACE).write_text(json.dumps(space))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SettingsError, match="lcbench want onnxruntime; pip install"):
        worlds("lcbench", Sources(checkouts=(tmp_path,)))
