"""Measure how well short runs rank configs as long runs do, through the installed command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.campaigns import COMMAND, Toy
from tests.support.waiting import wait_until
from trajectory.journal import read_rows
from trajectory.rows import CalibratedRow, CalibrationRow
from trajectory.statistics.fidelity import spearman

OF_A_COMMAND = """
name = "own"
[trainer]
command = ["{python}", "train.py", "--lr={lr}", "--seed={seed}", "--steps={steps}"]
score = { pattern = 'val loss ([0-9.]+)' }
unit = "nats per token"
[knobs.lr]
type = "float"
low = 0.1
high = 1.0
default = 0.5
[campaign]
budget = "100 steps"
"""


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    menu = toy.menu.read_text("utf-8").replace('"6 steps"', '"12 steps"')
    toy.menu.write_text(menu.replace("horizon_steps = 100", "horizon_steps = 50"))
    return toy


def arguments(toy: Toy, *options: str) -> list[str]:
    given = [f"--menu={toy.menu}", f"--campaign={toy.campaign}", "--steps=50"]
    return ["calibrate", "--fidelity", *given, "--configs=8", *options]


def runs(toy: Toy) -> list[CalibrationRow]:
    rows = read_rows(toy.campaign / "trajectory.jsonl")
    return [row for row in rows if isinstance(row, CalibrationRow)]


@pytest.mark.slow
def test_a_menu_is_calibrated_from_nothing_and_once(toy: Toy) -> None:
    done = toy.run(*arguments(toy, "--json"))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    own = found["ways"][0]
    assert (found["n"], own["name"], own["cost"]) == (8, "12 steps of 50", 1)
    named = {way["name"] for way in found["ways"]}
    # 3 × 50 and 0.3 × 50 and the budget; a sixth and a third of 12.
    assert {"horizon 12", "horizon 15", "horizon 150", "weights ema:2", "weights lawa:4"} <= named
    assert {"cooldown over the last 2", "two seeds of 6 steps", "24 steps"} <= named
    assert "quarters of the curve, extrapolated" in named
    assert any(name.endswith(" times the held-out text") for name in named)
    assert [times for times, _ in found["steps_curve"]] == [0.5, 1, 2]

    rows = runs(toy)
    assert len({(row.config_hash, row.trial.seed, row.run) for row in rows}) == len(rows)
    long = {row.config_hash: row.trial for row in rows if row.run.steps == 50}
    short = {row.config_hash: row.trial for row in rows if row.run.texts}
    assert len(long) == len(short) == 8
    assert not {t.seed for t in long.values()} & {t.seed for t in short.values()}
    scores = [(short[name].val_bpb or 0.0, long[name].val_bpb or 0.0) for name in long]
    by_hand = spearman([one for one, _ in scores], [other for _, other in scores])
    assert own["spearman"]["value"] == pytest.approx(by_hand)
    # A score taken at an earlier step equals the score of a run that ends at that step.
    baseline = [row for row in rows if row.config_hash == rows[0].config_hash]
    prefix = next(row.trial.result for row in baseline if row.run.steps == 24)
    (ended,) = [r.trial for r in baseline if r.run.texts]
    assert prefix.status == "ok" and prefix.looks_bpb == ()
    assert ended.result.status == "ok" and ended.result.looks_bpb[3] == ended.val_bpb

    plain = toy.run("top", f"--campaign={toy.campaign}").stdout
    said = f"{own['spearman']['value']:.2f} ({own['spearman']['lo']:.2f}"
    assert "12 steps of 50 against 50, n = 8 configs over the menu" in plain
    assert said in plain

    before = toy.rows()
    (toy.campaign / "history.sqlite").unlink()
    again = toy.run(*arguments(toy))
    assert again.returncode == 0, again.stderr
    assert toy.rows() == before
    assert said in again.stdout
    assert "what each further 0.05 takes" in again.stdout or "by length" in again.stdout

    # Calibration runs count in no ranking: a loop starts as if there were none.
    assert toy.loop(1).returncode == 0
    ranked = json.loads(toy.run("top", "--json", f"--campaign={toy.campaign}").stdout)
    assert all(max(entry["seeds"]) < 700 for entry in ranked["configs"])
    assert ranked["calibrated"] == found


@pytest.mark.slow
def test_killed_and_run_again_it_ends_as_if_it_had_not_been(toy: Toy, tmp_path: Path) -> None:
    whole = json.loads(toy.run(*arguments(toy, "--json")).stdout)
    other = Toy(tmp_path / "other")
    other.menu.write_text(toy.menu.read_text("utf-8"))
    for kills in (5, 20):
        process = started(other)
        wait_until(lambda: process.poll() is not None or count(other) >= kills)  # noqa: B023
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    done = other.run(*arguments(other, "--json"))
    assert done.returncode == 0, done.stderr
    rows = runs(other)
    assert len({(row.config_hash, row.trial.seed, row.run) for row in rows}) == len(rows)
    assert ranks(json.loads(done.stdout)) == ranks(whole)
    every = read_rows(other.campaign / "trajectory.jsonl")
    assert sum(isinstance(row, CalibratedRow) for row in every) == 1


def started(toy: Toy) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(COMMAND), *arguments(toy)],
        cwd=toy.home,
        env=toy.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def count(toy: Toy) -> int:
    journal = toy.campaign / "trajectory.jsonl"
    return journal.read_text("utf-8").count('"kind":"calibration"') if journal.exists() else 0


def ranks(found: dict[str, Any]) -> list[Any]:
    """Return the rankings without their costs, which depend on the seconds that runs took."""
    return [{k: v for k, v in way.items() if k != "cost"} for way in found["ways"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--steps=50", "--configs=7"), "8"),
        (("--long-seeds=0",), "1"),
    ],
)
def test_what_cannot_be_asked_is_bad_usage(toy: Toy, options: tuple[str, ...], said: str) -> None:
    done = toy.run("calibrate", "--fidelity", f"--menu={toy.menu}", *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_what_cannot_be_calibrated_is_one_sentence(toy: Toy) -> None:
    by_clock = toy.menu.read_text("utf-8").replace('"12 steps"', '"1 seconds"')
    toy.menu.write_text(by_clock.replace("lr_warmup <= budget_steps - 5", "lr > 0"))
    done = toy.run(*arguments(toy))
    assert done.returncode == 1
    said = "calibrate a campaign whose budget is in steps or tokens"
    assert said in " ".join((done.stdout + done.stderr).split())


def test_what_cannot_be_calibrated_leaves_no_campaign(toy: Toy) -> None:
    too_short = ["calibrate", "--fidelity", f"--menu={toy.menu}", f"--campaign={toy.campaign}"]
    toy.menu.write_text(toy.menu.read_text("utf-8").replace('"12 steps"', '"13 steps"'))
    done = toy.run(*too_short, "--steps=50")
    assert done.returncode == 1
    assert "ask for --steps 52 or more" in " ".join(done.stderr.split())
    assert not toy.campaign.exists()

    menu = toy.menu.with_name("command.toml")
    menu.write_text(OF_A_COMMAND)
    done = toy.run("calibrate", "--fidelity", f"--menu={menu}", f"--campaign={toy.campaign}")
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "calibrate --fidelity is for menus of the built-in trainer, and own names a" in said
    assert not toy.campaign.exists()
