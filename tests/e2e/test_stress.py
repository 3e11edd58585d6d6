"""Give the search's best configs long runs, through the installed command with real trials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from tests.support.campaigns import Toy
from tests.support.waiting import wait_until
from trajectory.journal import read_rows
from trajectory.rows import FinalistsRow, StressRow

pytestmark = pytest.mark.slow


def stress(toy: Toy, *options: str) -> subprocess.CompletedProcess[str]:
    return toy.run("stress", f"--campaign={toy.campaign}", *options)


def long_runs(toy: Toy) -> list[tuple[str, int, int]]:
    return [(row["config_hash"], row["trial"]["seed"], row["steps"]) for row in toy.rows("stress")]


def top(toy: Toy) -> dict[str, Any]:
    done = toy.run("top", "--k=50", "--json", f"--campaign={toy.campaign}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_whole_test_its_rows_and_its_files(toy: Toy) -> None:
    toy.begun(6)
    before = top(toy)
    assert before["ranking"] is None
    done = stress(toy, "--top=2", "--steps=60", "--seeds=2", "--spread=5")
    assert done.returncode == 0, done.stderr

    rows = list(read_rows(toy.campaign / "trajectory.jsonl"))
    stressed = [row for row in rows if isinstance(row, StressRow)]
    configs = len({row.config_hash for row in stressed})
    assert len(stressed) == 2 * configs == len(set(long_runs(toy)))
    assert {row.trial.seed for row in stressed} == {900, 901}
    assert {"candidate", "spread"} <= {row.purpose for row in stressed}
    for row in stressed:
        spec = json.loads((toy.campaign / f"trials/{row.trial.trial_id}/spec.json").read_text())
        assert spec["budget"] == {"unit": "steps", "amount": 60}
        assert spec["horizon_steps"] is None
        assert spec["limits"]["wall_s"] == 10 * 1800
        curve = (toy.campaign / f"trials/{row.trial.trial_id}/curve.jsonl").read_text()
        assert len(curve.splitlines()) == 60
    ended = rows[-1]
    assert isinstance(ended, FinalistsRow)
    means = [finalist.objective for finalist in ended.finalists]
    assert means == sorted(means)
    assert len(ended.spread) == 5

    for suffix in ("png", "svg"):
        assert (toy.campaign / f"stress-60.{suffix}").stat().st_size > 1000

    # The short runs' ranking is unchanged, and the test of the ranking is shown from now on.
    after = top(toy)
    assert after["configs"] == before["configs"]
    assert after["sigma"] == before["sigma"]
    assert after["ranking"]["n"] == 5
    assert toy.run("reindex", f"--campaign={toy.campaign}").returncode == 0
    assert top(toy) == after


def test_killed_in_a_run_only_that_run_is_run_again(toy: Toy) -> None:
    toy.begun(4)
    # A journal of the first format says once that another follows.
    journal = toy.campaign / "trajectory.jsonl"
    journal.write_text(journal.read_text("utf-8").replace('"schema":4', '"schema":1', 1), "utf-8")
    options = ("--top=2", "--steps=500", "--seeds=1")
    running = toy.started("stress", f"--campaign={toy.campaign}", *options)
    wait_until(lambda: len(toy.rows("stress")) == 1)
    trials = toy.campaign / "trials"
    wait_until(lambda: any(not (t / "result.json").exists() for t in trials.glob("t*")))
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    kept = toy.rows("stress")
    (lost,) = [t.name for t in trials.glob("t*") if not (t / "result.json").exists()]

    # The loop may run in between: it reports the trial that was cut short and ignores long runs.
    assert toy.loop(5).returncode == 0
    resumed = stress(toy, *options)
    assert resumed.returncode == 0, resumed.stderr
    assert toy.rows("stress")[: len(kept)] == kept
    assert len(set(long_runs(toy))) == len(long_runs(toy))
    counted = [row["trial"]["trial_id"] for row in toy.rows("stress")]
    assert lost not in counted
    assert [row["trial_ids"] for row in toy.rows("event")] == [[], [lost]]
    kinds = [row["kind"] for row in toy.rows()]
    assert kinds[kinds.index("stress") - 1] == "event"
