"""Measure the machine, the noise, and how well short runs rank configs as long runs do."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated.commands import SimulatedToy
from trajectory.journal import read_rows
from trajectory.rows import CalibrationRow
from trajectory.statistics.fidelity import spearman


@pytest.fixture
def toy(tmp_path: Path) -> SimulatedToy:
    toy = SimulatedToy(tmp_path)
    menu = toy.menu.read_text("utf-8").replace('"6 steps"', '"12 steps"')
    toy.menu.write_text(menu.replace("horizon_steps = 100", "horizon_steps = 50"))
    return toy


def arguments(toy: SimulatedToy, *options: str) -> list[str]:
    given = [f"--menu={toy.menu}", f"--campaign={toy.campaign}", "--steps=50"]
    return ["calibrate", "--fidelity", *given, "--configs=8", *options]


def runs(toy: SimulatedToy) -> list[CalibrationRow]:
    rows = read_rows(toy.campaign / "trajectory.jsonl")
    return [row for row in rows if isinstance(row, CalibrationRow)]


@pytest.mark.slow
def test_machine_noise_and_menu_are_measured_from_nothing_and_once(
    toy: SimulatedToy,
) -> None:
    done = toy.run("doctor", "--json")
    assert done.returncode == 0, done.stdout
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    looked_at = "sandbox python torch device megatron disk corpus endpoint".split()
    assert list(checks) == looked_at
    assert checks["endpoint"]["state"] == "note"

    there = f"--campaign={toy.home / 'runs' / 'noise'}"
    done = toy.run("calibrate", "--seeds=3", f"--menu={toy.menu}", there, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["iterations"], summary["sigma_dof"]) == (0, 2)
    assert summary["sigma"] > 0

    done = toy.run(*arguments(toy, "--json"))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    own = found["proxy_metrics"][0]
    assert (found["n"], own["name"]) == (8, "12 steps of 50")
    named = {way["name"] for way in found["proxy_metrics"]}
    # 3 × 50 and 0.3 × 50 and the budget; a sixth and a third of 12.
    assert {"horizon 12", "horizon 15", "horizon 150", "weights ema:2", "weights lawa:4"} <= named
    assert "cooldown over the last 2" in named

    rows = runs(toy)
    assert len({(row.config_hash, row.trial.seed, row.run) for row in rows}) == len(rows)
    long = {row.config_hash: row.trial for row in rows if row.run.steps == 50}
    short = {row.config_hash: row.trial for row in rows if row.run.checkpoints}
    assert len(long) == len(short) == 8
    assert not {t.seed for t in long.values()} & {t.seed for t in short.values()}
    scores = [(short[name].objective or 0.0, long[name].objective or 0.0) for name in long]
    by_hand = spearman([one for one, _ in scores], [other for _, other in scores])
    assert own["spearman"]["value"] == pytest.approx(by_hand)

    before = toy.rows()
    (toy.campaign / "history.sqlite").unlink()
    again = toy.run(*arguments(toy))
    assert again.returncode == 0, again.stderr
    assert toy.rows() == before

    # Calibration runs count in no ranking: a loop starts as if there were none.
    assert toy.loop(1).returncode == 0
    ranked = json.loads(toy.run("top", "--json", f"--campaign={toy.campaign}").stdout)
    assert all(max(entry["seeds"]) < 700 for entry in ranked["configs"])
    assert ranked["calibrated"] == found
