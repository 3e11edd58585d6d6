"""Run the loop through the installed command, with real trials."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tomllib
from pathlib import Path

import pytest

from tests.support.accounts import check_campaign_complete
from tests.support.campaigns import Toy, killed_after
from tests.support.in_process import run_here
from tests.support.waiting import wait_until
from trainer.isolation.trial_files import sealed_path
from trajectory.rows import SCHEMA


def test_a_campaign_from_nothing_then_resumed(toy: Toy) -> None:
    first = toy.loop(2)
    assert first.returncode == 0, first.stderr
    rows = toy.rows()
    assert [row["kind"] for row in rows[:3]] == ["campaign", "baseline", "baseline"]
    assert [row["iter"] for row in toy.iterations()] == [1, 2]
    assert rows[0]["schema"] == SCHEMA
    before = (toy.campaign / "trajectory.jsonl").read_bytes()

    more = toy.loop(4)
    assert more.returncode == 0, more.stderr
    assert [row["iter"] for row in toy.iterations()] == [1, 2, 3, 4]
    assert (toy.campaign / "trajectory.jsonl").read_bytes().startswith(before)


@pytest.mark.slow
def test_one_signal_finishes_the_trial_and_says_how_to_resume(toy: Toy) -> None:
    running = toy.start(50)
    wait_until((toy.campaign / "trials" / "t000003").exists)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate()
    assert running.returncode == 130, output
    resume = output.splitlines()[-1]
    assert resume.split() == ["autoresearch", *toy.arguments(50)[1:]]
    done = len(toy.iterations())
    trials = sorted((toy.campaign / "trials").glob("t*"))
    assert all((trial / "result.json").exists() for trial in trials), "a trial was cut short"
    resumed = toy.loop(done + 2)
    assert resumed.returncode == 0, resumed.stderr
    assert [row["iter"] for row in toy.iterations()] == list(range(1, done + 3))
    assert not [row for row in toy.rows() if row["kind"] == "event"], "nothing was lost"


@pytest.mark.slow
def test_a_baseline_that_fails_is_accounted_for_and_tried_again(toy: Toy) -> None:
    toy.menu.write_text(toy.menu.read_text().replace("[campaign]", "[campaign]\nwall_s = 0.5"))
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", "100000 steps"))
    for attempt in (1, 2):
        failed = toy.loop(1)
        assert failed.returncode == 1
        notes = [row for row in toy.rows() if row["kind"] == "event" and row["trial_ids"]]
        assert [note["trial_ids"] for note in notes] == [
            [f"t{number:06d}"] for number in range(1, attempt + 1)
        ]


def story(toy: Toy) -> list[object]:
    return [(row["proposal"], row["config_hash"], row["decision"]) for row in toy.iterations()]


@pytest.mark.slow
def test_stopped_and_resumed_from_the_journal_alone_it_is_the_same_search(
    toy: Toy, tmp_path: Path
) -> None:
    whole = Toy(tmp_path / "whole")
    assert whole.loop(4, "--set=z_keep=2.5").returncode == 0
    assert toy.loop(2, "--set=z_keep=2.5").returncode == 0
    kept = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    journal = (toy.campaign / "trajectory.jsonl").read_bytes()
    shutil.rmtree(toy.campaign)
    toy.campaign.mkdir()
    (toy.campaign / "trajectory.jsonl").write_bytes(journal)
    for _ in range(2):  # the second time nothing is left to do
        more = toy.run("loop", "--iters=4", f"--campaign={toy.campaign}", "--no-confirm")
        assert more.returncode == 0, more.stderr
        assert story(toy) == story(whole)
    assert (toy.campaign / "trajectory.jsonl").read_bytes().startswith(journal)
    made = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    assert made == kept | {"menu": made["menu"]}

    other = shutil.copytree(toy.home / "text", toy.home / "other")
    for path in other.iterdir():
        path.write_text(path.read_text().replace("loop", "hoop"))
    (toy.campaign / "campaign.toml").unlink()
    refused = toy.run("loop", "--iters=5", f"--campaign={toy.campaign}", f"--corpus={other}")
    assert refused.returncode == 1
    assert not (toy.campaign / "campaign.toml").exists()


@pytest.mark.slow
def test_what_may_change_between_sessions_and_what_may_not(toy: Toy) -> None:
    toy.begun(2)
    # A trial left pipes where its files should be: they do not hang the resumption.
    planted = toy.campaign / "trials" / "t000099"
    planted.mkdir()
    orders = [sealed_path(planted.with_name(name)) for name in ("t000001", planted.name)]
    orders[1].write_bytes(orders[0].read_bytes())
    os.mkfifo(planted / "result.json")
    os.mkfifo(planted / "spec.json")
    written = toy.menu.read_text()
    toy.menu.write_text(written.replace("high = 1e-1", "high  =  0.1  # the same"))
    resumed = toy.loop(3)
    assert resumed.returncode == 0, resumed.stderr
    assert len(toy.iterations()) == 3
    assert ["t000099"] in [row["trial_ids"] for row in toy.rows() if row["kind"] == "event"]

    before = (toy.campaign / "trajectory.jsonl").read_bytes()
    for change in ("--budget=7 steps", "--set=horizon_steps=budget", "--seed=9"):
        words = tuple(toy.arguments(4, change)[1:])
        refused = run_here(words, toy.home, toy.environment)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    toy.menu.write_text(written.replace("high = 1e-1", "high = 2e-1"))
    assert toy.loop(4).returncode == 1
    toy.menu.write_text(written)
    for path in (toy.home / "text").iterdir():
        path.write_text(path.read_text().replace("loop", "hoop"))
    assert toy.loop(4).returncode == 1
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_pause_file_pauses_and_its_removal_resumes(toy: Toy) -> None:
    """The loop and a stress, of a campaign whose budget is in tokens."""
    toy.menu.write_text(toy.menu.read_text().replace('"6 steps"', '"768 tokens"'))
    toy.campaign.mkdir(parents=True)
    (toy.campaign / "pause").touch()
    running = toy.start(1)
    wait_until(lambda: (toy.campaign / "trajectory.jsonl").exists() and len(toy.rows()) >= 4)
    assert toy.rows()[-1]["event"] == "paused"
    assert not toy.iterations()
    (toy.campaign / "pause").unlink()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert [row["event"] for row in toy.rows("event")] == ["paused", "resumed"]
    assert len(toy.iterations()) == 1

    (toy.campaign / "pause").touch()
    few = ("--top=1", "--steps=50", "--seeds=1", "--no-baseline")
    running = toy.started("stress", f"--campaign={toy.campaign}", *few)
    wait_until(lambda: len(toy.rows("event")) == 3)
    assert not toy.rows("stress")
    (toy.campaign / "pause").unlink()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert [row["event"] for row in toy.rows("event")] == ["paused", "resumed"] * 2
    (row,) = toy.rows("stress")
    assert row["trial"]["result"]["tokens"] == 50 * 4 * 32


@pytest.mark.slow
def test_killed_at_each_stage_nothing_is_lost_or_counted_twice(toy: Toy) -> None:
    trials = toy.campaign / "trials"
    stages = (
        (toy.campaign / "campaign.lock").exists,
        (trials / "t000001" / "curve.jsonl").exists,
        (trials / "t000004" / "result.json").exists,
        (trials / "t000006").exists,
    )
    iterations = 0
    for reached in stages:
        with killed_after(toy.start(iterations + 30)) as running:
            wait_until(reached)
            if reached is stages[1]:  # a second writer learns who holds the campaign
                second = toy.loop(50)
                assert second.returncode == 1
                assert str(running.pid) in second.stderr
        if (toy.campaign / "trajectory.jsonl").exists():
            lines = (toy.campaign / "trajectory.jsonl").read_bytes().split(b"\n")
            whole = [json.loads(line) for line in lines[:-1]]
            iterations = sum(row["kind"] == "iteration" for row in whole)
    final = toy.loop(iterations + 1)
    assert final.returncode == 0, final.stderr
    numbers = [row["iter"] for row in toy.iterations()]
    assert numbers == sorted(numbers)
    check_campaign_complete(toy, iterations + 1)
