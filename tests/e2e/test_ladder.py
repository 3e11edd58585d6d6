import json
import os
import signal
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from funnel.ladder.result import read_ladder
from tests.support.campaigns import Toy
from tests.support.waiting import wait_until

OPTIONS = ("--rungs=4", "--hours=0.1", "--tokens-per-param=2")


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    # A baseline with too low a learning rate: the search beats it at once.
    toy.menu.write_text(toy.menu.read_text().replace("default = 1e-3", "default = 2e-4"))
    return toy


def ladder(toy: Toy, *options: str) -> subprocess.CompletedProcess[str]:
    return toy.run("ladder", f"--campaign={toy.campaign}", *OPTIONS, *options)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_four_rungs_killed_in_the_middle_and_tampered_with(toy: Toy) -> None:
    done = toy.loop(4)
    assert done.returncode == 0, done.stderr
    before = toy.run("top", "--k=50", "--json", f"--campaign={toy.campaign}").stdout

    running = toy.started("ladder", f"--campaign={toy.campaign}", *OPTIONS)
    wait_until(lambda: len(toy.rows("ladder")) == 5)
    trials = toy.campaign / "trials"
    wait_until(lambda: any(not (t / "result.json").exists() for t in trials.glob("t*")))
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    kept = toy.rows("ladder")
    (plan,) = toy.rows("ladder_plan")
    assert not toy.rows("ladder_prediction")

    resumed = ladder(toy, "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert toy.rows("ladder")[: len(kept)] == kept
    assert toy.rows("ladder_plan") == [plan]
    ran = [(r["config_hash"], r["steps"], r["trial"]["seed"]) for r in toy.rows("ladder")]
    asked = [
        (run["rung"], run["recipe"], run["length"], seed)
        for run in plan["runs"]
        for seed in run["seeds"]
    ]
    assert len(set(ran)) == len(ran) == len(asked) == 22
    _holds_the_order(toy)

    found = json.loads(resumed.stdout)
    assert found["complete"] and not found["left_out"]
    assert len(found["points"]) == 22
    assert {outcome["recipe"] for outcome in found["predicted"]["outcomes"]} == {
        "winner",
        "baseline",
    }
    assert all(outcome["error"] is not None for outcome in found["predicted"]["outcomes"])
    assert found["lead"]["trend"] in {"grows", "holds", "shrinks", "unclear"}
    assert all(Path(file).stat().st_size > 1000 for file in found["plots"])
    read = read_ladder(toy.campaign)
    assert read is not None and read.predicted is not None
    assert read.predicted.sha256 == found["predicted"]["sha256"]

    # The short runs' ranking is unchanged, and the index matches the journal.
    assert toy.run("top", "--k=50", "--json", f"--campaign={toy.campaign}").stdout == before
    assert toy.run("reindex", f"--campaign={toy.campaign}").returncode == 0

    journal = (toy.campaign / "trajectory.jsonl").read_bytes()
    ladder(toy)
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == journal

    middle = json.dumps(found["predicted"]["outcomes"][0]["middle"]).encode()
    assert journal.count(middle) == 1
    (toy.campaign / "trajectory.jsonl").write_bytes(journal.replace(middle, b"1.0"))
    refused = ladder(toy)
    assert refused.returncode == 1
    (_sentence,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]


def _holds_the_order(toy: Toy) -> None:
    """Check that the prediction was on disk before the largest rung's first trial had a spec."""
    kinds = [(row["kind"], row.get("rung")) for row in toy.rows()]
    assert kinds.index(("ladder_prediction", None)) < kinds.index(("ladder", 4))
    (prediction,) = toy.rows("ladder_prediction")
    written_s = datetime.fromisoformat(prediction["at"]).timestamp()
    largest = [row for row in toy.rows("ladder") if row["rung"] == 4]
    assert {row["prediction_sha256"] for row in largest} == {prediction["sha256"]}
    for row in largest:
        spec = toy.campaign / "trials" / row["trial"]["trial_id"] / "spec.json"
        assert spec.stat().st_mtime > written_s
        said = json.loads(spec.read_text("utf-8"))
        assert said["horizon_steps"] is None
        assert said["budget"] == {"unit": "steps", "amount": row["steps"]}
    for row in toy.rows("ladder"):
        assert (row["prediction_sha256"] is None) == (row["rung"] < 4)
