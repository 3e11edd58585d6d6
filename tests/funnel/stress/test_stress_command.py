"""Give the search's best configs long runs through the command, with simulated trials."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated.commands import SimulatedToy
from trajectory.journal import read_rows
from trajectory.rows import FinalistsRow, StressRow


def top(toy: SimulatedToy) -> dict[str, Any]:
    done = toy.run("top", "--k=50", "--json", f"--campaign={toy.campaign}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_whole_test_its_rows_and_its_files(tmp_path: Path) -> None:
    toy = SimulatedToy(tmp_path)
    assert toy.loop(6).returncode == 0
    before = top(toy)
    assert before["ranking"] is None
    options = ("--top=2", "--steps=60", "--seeds=2", "--spread=5")
    done = toy.run("stress", f"--campaign={toy.campaign}", *options)
    assert done.returncode == 0, done.stderr

    rows = list(read_rows(toy.campaign / "trajectory.jsonl"))
    stressed = [row for row in rows if isinstance(row, StressRow)]
    runs = {(row.config_hash, row.trial.seed, row.steps) for row in stressed}
    configs = len({row.config_hash for row in stressed})
    assert len(stressed) == 2 * configs == len(runs)
    assert {row.trial.seed for row in stressed} == {900, 901}
    assert {"candidate", "spread"} <= {row.purpose for row in stressed}
    for row in stressed:
        order = toy.campaign / "trials" / ".specs" / f"{row.trial.trial_id}.json"
        spec = json.loads(order.read_text())
        assert spec["budget"] == {"unit": "steps", "amount": 60}
        assert spec["horizon_steps"] is None
        assert spec["limits"]["wall_s"] == 10 * 1800
    ended = rows[-1]
    assert isinstance(ended, FinalistsRow)
    means = [finalist.objective for finalist in ended.finalists]
    assert means == sorted(means)
    assert len(ended.spread) == 5

    # The short runs' ranking is unchanged, and the test of the ranking is shown from now on.
    after = top(toy)
    assert after["configs"] == before["configs"]
    assert after["sigma"] == before["sigma"]
    assert after["ranking"]["n"] == 5
    assert toy.run("reindex", f"--campaign={toy.campaign}").returncode == 0
    assert top(toy) == after
