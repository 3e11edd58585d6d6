"""Measure the machine, the noise, and how well short runs rank configs as long runs do."""

from pathlib import Path

import pytest

from tests.support.simulated.commands import SimulatedToy


@pytest.fixture
def toy(tmp_path: Path) -> SimulatedToy:
    toy = SimulatedToy(tmp_path)
    menu = toy.menu.read_text("utf-8").replace('"6 steps"', '"12 steps"')
    toy.menu.write_text(menu.replace("horizon_steps = 100", "horizon_steps = 50"))
    return toy


def arguments(toy: SimulatedToy) -> list[str]:
    given = [f"--menu={toy.menu}", f"--campaign={toy.campaign}", "--steps=50"]
    return ["calibrate", "--fidelity", *given, "--configs=8"]


@pytest.mark.slow
def test_machine_noise_and_menu_are_measured_from_nothing_and_once(toy: SimulatedToy) -> None:
    checks = {check["name"]: check for check in toy.answer("doctor")["checks"]}
    looked_at = "sandbox world python torch device megatron disk corpus endpoint".split()
    assert list(checks) == looked_at
    assert checks["endpoint"]["state"] == "note"

    there = f"--campaign={toy.home / 'runs' / 'noise'}"
    summary = toy.answer("calibrate", "--seeds=3", f"--menu={toy.menu}", there)
    assert (summary["iterations"], summary["sigma_dof"]) == (0, 2)
    assert summary["sigma"] > 0

    found = toy.answer(*arguments(toy))
    assert (found["n"], found["proxy_metrics"][0]["name"]) == (8, "12 steps of 50")

    before = toy.rows()
    (toy.campaign / "history.sqlite").unlink()
    again = toy.run(*arguments(toy))
    assert again.returncode == 0, again.stderr
    assert toy.rows() == before

    # Calibration runs count in no ranking: a loop starts as if there were none.
    assert toy.loop(1).returncode == 0
    ranked = toy.answer("top", f"--campaign={toy.campaign}")
    assert all(max(entry["seeds"]) < 700 for entry in ranked["configs"])
    assert ranked["calibrated"] == found
