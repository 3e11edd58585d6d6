import os
import signal

import pytest

from tests.support.campaigns import Toy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_killed_in_a_run_only_that_run_is_run_again(toy: Toy) -> None:
    toy.begun(4)
    words = ("stress", f"--campaign={toy.campaign}", "--top=2", "--steps=500", "--seeds=1")
    running = toy.started(*words)
    wait_until(lambda: len(toy.rows("stress")) == 1)
    trials = toy.campaign / "trials"
    wait_until(lambda: any(not (t / "result.json").exists() for t in trials.glob("t*")))
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    kept = toy.rows("stress")
    (lost,) = [t.name for t in trials.glob("t*") if not (t / "result.json").exists()]

    # The loop may run in between: it reports the trial that was cut short and ignores long runs.
    assert toy.loop(5).returncode == 0
    resumed = toy.run(*words)
    assert resumed.returncode == 0, resumed.stderr
    assert toy.rows("stress")[: len(kept)] == kept
    runs = [(r["config_hash"], r["trial"]["seed"], r["steps"]) for r in toy.rows("stress")]
    assert len(set(runs)) == len(runs)
    counted = [row["trial"]["trial_id"] for row in toy.rows("stress")]
    assert lost not in counted
    assert [row["trial_ids"] for row in toy.rows("event")] == [[lost]]
