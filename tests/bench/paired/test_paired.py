"""Two versions side by side: how one is had, what it had found by when, what that is worth."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from agent.menu.files import load_menu
from agent.search.campaign_settings import new_settings
from autoresearch.errors import SettingsError
from autoresearch.layout import JOURNAL_FILE
from bench.paired.checkouts import HERE, Checkout, full_hash
from bench.paired.found import incumbent_at, iterations_of, seconds_of
from bench.paired.fresh import FIRST_FRESH_SEED, FreshRuns, Interval
from bench.simulator.executor import SimulatedExecutor
from tests.support.rows import baseline_row as a_baseline_row
from tests.support.rows import campaign_row, iteration_row, ok, trial
from tests.support.worlds import RateWorld
from trainer.corpus import Corpus
from trajectory.journal import Journal
from trajectory.rows import Decision

MENU = load_menu("cpu-tiny")


def campaign(tmp_path: Path) -> Path:
    """A baseline of two runs and three iterations of 10 s each, of which the second is kept."""
    config = MENU.apply(MENU.baseline, {"lr": 2e-3})
    with Journal(tmp_path / JOURNAL_FILE) as journal:
        journal.append(campaign_row())
        for seed in range(2):
            journal.append(a_baseline_row(seed, 3.9, seed, MENU.baseline))
        for number in (1, 2, 3):
            kept = number == 2
            tried = config if kept else MENU.apply(MENU.baseline, {"lr": 1e-3 + number * 1e-4})
            reference = MENU.baseline.config_hash
            row = iteration_row(
                number,
                tried,
                (trial(number + 10, tried, 0, ok(3.8)),),
                changes={"lr": tried.lr},
                decision=Decision(
                    action="keep" if kept else "discard", reference_hash=reference, delta=-0.1
                ),
            )
            journal.append(row.model_copy(update={"wall_s": 10.0}))
    return tmp_path


def test_what_was_found_is_what_had_been_kept_by_then(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    whole = seconds_of(path)
    before = whole - 30.0
    assert before > 0, "the baseline's runs count"
    found = [incumbent_at(path, before + seconds) for seconds in (0, 19, 20, 30)]
    assert [iterations for _, iterations in found] == [0, 1, 2, 3]
    assert [config.lr for config, _ in found] == [MENU.baseline.lr] * 2 + [2e-3] * 2


def test_gains_are_paired_by_fresh_seed_and_kept(tmp_path: Path) -> None:
    world = RateWorld(0.05)
    settings = new_settings(MENU, "cpu-tiny", {"threads": 1})
    info = campaign_row().corpus
    tokens = np.memmap(tmp_path / "tokens", dtype="uint16", mode="w+", shape=(1,))
    corpus = Corpus(info, tokens, tokens, tmp_path)
    better = MENU.apply(MENU.baseline, {"lr": 1e-2})
    worst = MENU.apply(MENU.baseline, {"lr": 2.5e-2})
    path = tmp_path / "fresh.jsonl"
    with SimulatedExecutor(world) as executor:
        runs = FreshRuns(path, executor, settings, corpus)
        gain = runs.gain(better, MENU.baseline, 4)
        assert runs.gain(MENU.baseline, MENU.baseline, 4) == 0
        assert math.isnan(runs.gain(worst, MENU.baseline, 1)), "it fails"
    assert gain == pytest.approx(1.0, abs=0.1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {seed for _, seed, _ in lines} == {FIRST_FRESH_SEED + n for n in range(4)}
    path.write_text(path.read_text() + '["torn')
    closed = SimulatedExecutor(world)
    closed.close()
    again = FreshRuns(path, closed, settings, corpus)
    assert again.gain(better, MENU.baseline, 4) == gain, "nothing is run again"


def test_an_interval_is_student_s() -> None:
    found = Interval.of([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.high - 2.0 == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert Interval.of([1.0]).low == -math.inf


@pytest.mark.slow
def test_a_version_runs_its_own_code_with_the_libraries_of_here(tmp_path: Path) -> None:
    if not (HERE / ".git").exists():
        pytest.skip("not in a checkout")
    made = Checkout.made("now", "HEAD", tmp_path)
    again = Checkout.made("now", full_hash("HEAD"), tmp_path)
    assert again == made
    script = "import agent, torch, autoresearch; print(agent.__file__)"
    python = made.directory / ".venv/bin/python"
    asked = [str(python), "-c", script]
    said = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.strip() == str(made.directory / "agent/__init__.py")


def test_a_commit_that_is_not_there_is_refused(tmp_path: Path) -> None:
    if not (HERE / ".git").exists():
        pytest.skip("not in a checkout")
    with pytest.raises(SettingsError, match="name a commit that this repository has"):
        Checkout.made("earlier", "no-such-commit", tmp_path)


def test_a_loop_is_stopped_once_that_is_enough(tmp_path: Path) -> None:
    """Its exit code is no error then; one that ends by itself in an error is."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text("#!/bin/sh\necho began > began\nexec sleep 60\n")
    python.chmod(0o755)
    version = Checkout("now", tmp_path)
    began = tmp_path / "began"
    version.loop(tmp_path / "campaign", enough=lambda: True)
    assert not began.exists(), "there was nothing to do"
    version.loop(tmp_path / "campaign", enough=began.exists)
    assert began.exists()
    python.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(SettingsError, match="exit code 3; what it said stands above"):
        version.loop(tmp_path / "campaign", enough=lambda: False)


def test_a_campaign_that_has_not_begun_took_no_time(tmp_path: Path) -> None:
    assert (seconds_of(tmp_path), iterations_of(tmp_path)) == (0.0, 0)
    assert iterations_of(campaign(tmp_path)) == 3
