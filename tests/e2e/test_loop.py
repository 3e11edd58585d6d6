import json
import signal
from pathlib import Path

import pytest

from tests.support.accounts import check_campaign_complete
from tests.support.campaigns import Toy, killed_after
from tests.support.waiting import wait_until
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
    resume = output.splitlines()[-1].split()
    assert Path(resume[0]).name == "autoresearch"  # its whole path where PATH has none
    assert resume[1:] == toy.arguments(50)[1:]
    done = len(toy.iterations())
    trials = sorted((toy.campaign / "trials").glob("t*"))
    assert all((trial / "result.json").exists() for trial in trials), "a trial was cut short"
    resumed = toy.loop(done + 2)
    assert resumed.returncode == 0, resumed.stderr
    assert [row["iter"] for row in toy.iterations()] == list(range(1, done + 3))
    assert not [row for row in toy.rows() if row["kind"] == "event"], "nothing was lost"


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
