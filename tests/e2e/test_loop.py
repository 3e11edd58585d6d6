"""Run the loop through the installed command, with real trials."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tomllib
from pathlib import Path

import pytest

from tests.support.accounts import check_campaign_complete
from tests.support.campaigns import Toy, killed_after
from tests.support.in_process import run_here
from tests.support.openai_server import OpenAIServer, hangs
from tests.support.waiting import wait_until
from trainer.isolation.trial_files import sealed_path
from trajectory.rows import SCHEMA


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def test_a_campaign_from_nothing_then_resumed(toy: Toy) -> None:
    first = toy.loop(3)
    assert first.returncode == 0, first.stderr
    rows = toy.rows()
    assert [row["kind"] for row in rows[:3]] == ["campaign", "baseline", "baseline"]
    assert [row["iter"] for row in toy.iterations()] == [1, 2, 3]
    assert rows[0]["schema"] == SCHEMA
    before = (toy.campaign / "trajectory.jsonl").read_bytes()

    again = toy.loop(3)
    assert again.returncode == 0, again.stderr
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == before

    more = toy.loop(5)
    assert more.returncode == 0, more.stderr
    assert [row["iter"] for row in toy.iterations()] == [1, 2, 3, 4, 5]
    assert (toy.campaign / "trajectory.jsonl").read_bytes().startswith(before)


@pytest.mark.slow
def test_stopping_and_resuming_leaves_the_same_search(toy: Toy, tmp_path: Path) -> None:
    assert toy.loop(4).returncode == 0
    other = Toy(tmp_path / "other").begun(2)
    done = other.loop(4)
    assert done.returncode == 0, done.stderr

    def story(rows: list[dict[str, object]]) -> list[object]:
        return [
            (row["proposal"], row["config_hash"], row["decision"])  # type: ignore[index]
            for row in rows
        ]

    assert story(toy.iterations()) == story(other.iterations())


@pytest.mark.slow
def test_another_evaluation_or_text_is_refused(toy: Toy) -> None:
    toy.begun(2)
    before = (toy.campaign / "trajectory.jsonl").read_bytes()
    for change in ("--budget=7 steps", "--set=horizon_steps=budget", "--seed=9"):
        words = tuple(toy.arguments(3, change)[1:])
        refused = run_here(words, toy.home, toy.environment)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    for path in (toy.home / "text").iterdir():
        path.write_text(path.read_text().replace("loop", "hoop"))
    assert toy.loop(3).returncode == 1
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == before


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


def test_two_signals_stop_at_once_and_lose_only_the_trial(toy: Toy) -> None:
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", "100000 steps"))
    running = toy.start(5)
    wait_until((toy.campaign / "trials" / "t000001" / "curve.jsonl").exists)
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGINT)  # two equal signals could arrive as one
    output, _ = running.communicate()
    assert running.returncode == 130, output


@pytest.mark.slow
def test_a_tracker_that_hangs_does_not_hold_up_two_signals(toy: Toy) -> None:
    pytest.importorskip("mlflow")
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", "100000 steps"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        running = toy.start(5, f"--log=mlflow:http://127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()  # the tracker's client has asked, and gets no answer
        wait_until((toy.campaign / "trials" / "t000001" / "curve.jsonl").exists)
        for number in (signal.SIGINT, signal.SIGTERM):  # two equal signals could arrive as one
            running.send_signal(number)
        output, _ = running.communicate()
        connection.close()
    assert running.returncode == 130, output


@pytest.mark.slow
def test_a_pause_file_pauses_and_its_removal_resumes(toy: Toy) -> None:
    toy.campaign.mkdir(parents=True)
    (toy.campaign / "pause").touch()
    running = toy.start(1)
    wait_until(lambda: (toy.campaign / "trajectory.jsonl").exists() and len(toy.rows()) >= 4)
    assert toy.rows()[-1]["event"] == "paused"
    assert not toy.iterations()
    (toy.campaign / "pause").unlink()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert [row["event"] for row in toy.rows() if row["kind"] == "event"] == ["paused", "resumed"]
    assert len(toy.iterations()) == 1


@pytest.mark.slow
def test_a_second_writer_is_told_who_holds_the_campaign(toy: Toy) -> None:
    with killed_after(toy.start(50)) as running:
        wait_until((toy.campaign / "trials" / "t000001").exists)
        second = toy.loop(50)
    assert second.returncode == 1
    assert str(running.pid) in second.stderr


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
        running = toy.start(iterations + 30)
        wait_until(reached)
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        if (toy.campaign / "trajectory.jsonl").exists():
            lines = (toy.campaign / "trajectory.jsonl").read_bytes().split(b"\n")
            whole = [json.loads(line) for line in lines[:-1]]
            iterations = sum(row["kind"] == "iteration" for row in whole)
    final = toy.loop(iterations + 1)
    assert final.returncode == 0, final.stderr
    numbers = [row["iter"] for row in toy.iterations()]
    assert numbers == sorted(numbers)
    check_campaign_complete(toy, iterations + 1)


@pytest.mark.slow
def test_a_signal_while_no_trial_runs_stops_at_once(toy: Toy) -> None:
    with OpenAIServer([hangs(60)]) as server:
        toy.environment["AUTORESEARCH_LLM_BASE_URL"] = server.url
        running = toy.start(3, "--proposer=llm")
        journal = toy.campaign / "trajectory.jsonl"
        wait_until(lambda: journal.exists() and len(toy.rows()) >= 3)
        wait_until(lambda: server.chats)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate()
    assert running.returncode == 130, output


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


@pytest.mark.slow
def test_the_journal_alone_is_enough_to_go_on(toy: Toy) -> None:
    assert toy.loop(2, "--set=z_keep=2.5").returncode == 0
    kept = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    journal = (toy.campaign / "trajectory.jsonl").read_bytes()
    shutil.rmtree(toy.campaign)
    toy.campaign.mkdir()
    (toy.campaign / "trajectory.jsonl").write_bytes(journal)
    more = toy.run("loop", "--iters=3", f"--campaign={toy.campaign}")
    assert more.returncode == 0, more.stderr
    assert [row["iter"] for row in toy.iterations()] == [1, 2, 3]
    assert (toy.campaign / "trajectory.jsonl").read_bytes().startswith(journal)
    made = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    assert made == kept | {"menu": made["menu"]}

    other = shutil.copytree(toy.home / "text", toy.home / "other")
    for path in other.iterdir():
        path.write_text(path.read_text().replace("loop", "hoop"))
    (toy.campaign / "campaign.toml").unlink()
    refused = toy.run("loop", "--iters=4", f"--campaign={toy.campaign}", f"--corpus={other}")
    assert refused.returncode == 1
    assert not (toy.campaign / "campaign.toml").exists()


@pytest.mark.slow
def test_a_pipe_where_a_result_should_be_does_not_hang_the_resumption(toy: Toy) -> None:
    toy.begun(2)
    planted = toy.campaign / "trials" / "t000099"
    planted.mkdir()
    orders = [sealed_path(planted.with_name(name)) for name in ("t000001", planted.name)]
    orders[1].write_bytes(orders[0].read_bytes())
    os.mkfifo(planted / "result.json")
    os.mkfifo(planted / "spec.json")
    done = toy.loop(3)
    assert done.returncode == 0, done.stderr
    assert ["t000099"] in [row["trial_ids"] for row in toy.rows() if row["kind"] == "event"]
