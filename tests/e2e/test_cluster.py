"""Run a campaign on a Ray cluster of two nodes, through the installed command with real trials."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.accounts import check_campaign_complete
from tests.support.campaigns import Toy, killed_after
from tests.support.ray_clusters import LocalCluster
from tests.support.waiting import wait_beside, wait_until

pytestmark = pytest.mark.slow


def on(cluster: LocalCluster, *more: str) -> list[str]:
    return [f"--executor=ray:{cluster.address}", "--lanes=2", "--threads=1", *more]


def test_the_doctor_and_trials_know_each_node(cluster: LocalCluster, tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    # The current directory may be a person's checkout: its code is not ours and must not run
    # unconfined.
    for name in ("trainer", "agent"):
        (toy.home / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    done = toy.run("doctor", f"--executor=ray:{cluster.address}", "--json")
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0, done.stdout
    checks = [(check["name"], check["state"]) for check in json.loads(done.stdout)["checks"]]
    for name in ("spark1", "spark2"):
        assert (name, "good") in checks, done.stdout
    assert "token" not in dict(checks), "nobody comes in without it"

    here = Toy(tmp_path / "here")
    assert toy.loop(0, f"--executor=ray:{cluster.address}", "--threads=1").returncode == 0
    assert not (tmp_path / "ran").exists()
    assert here.loop(0, "--threads=1").returncode == 0
    scores = [
        [row["trial"]["result"]["val_bpb"] for row in one.rows("baseline")] for one in (toy, here)
    ]
    assert len(scores[0]) == 2
    assert scores[0] == scores[1]


def test_a_night_on_two_nodes_is_killed_and_goes_on(cluster: LocalCluster, tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    first = toy.start(4, *on(cluster))
    wait_until(lambda: toy.iterations() != [])
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = toy.rows()

    done = toy.loop(4)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = toy.rows()
    assert rows[: len(before)] == before
    assert sorted(row["iter"] for row in toy.iterations()) == [1, 2, 3, 4]
    trials = [row["trial"] for row in rows if row["kind"] == "baseline"]
    trials += [trial for row in toy.iterations() for trial in row["trials"]]
    # Trials that ran when the driver was killed may lack a record of their node.
    places = [trial["place"] for trial in trials if "place" in trial]
    assert len(trials) - len(places) <= 2
    assert {place["node"] for place in places} == {"spark1", "spark2"}
    assert len({place["device"] for place in places}) == 1
    for trial in trials:
        there = toy.campaign / "trials" / trial["trial_id"]
        names = {"spec.json", "curve.jsonl", "result.json", "trainer.log"}
        assert names <= {path.name for path in there.iterdir()}


def ran_on(toy: Toy) -> list[str]:
    """Return the node of every trial, in the order of the rows."""
    return [trial["place"]["node"] for row in toy.iterations() for trial in row["trials"]]


def done(toy: Toy) -> int:
    return len(toy.iterations())


def test_a_lost_node_is_used_again_when_it_is_back(cluster: LocalCluster, tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    night, said = toy.start_night(*on(cluster))
    with killed_after(night) as running:
        wait_beside(running, said, lambda: done(toy) >= 2)
        cluster.nodes["spark2"].lose()
        lost_at = done(toy)
        wait_beside(running, said, lambda: done(toy) >= lost_at + 6)
        # A row of an iteration that began before the loss may still name the lost node.
        wait_beside(running, said, lambda: set(ran_on(toy)[-4:]) == {"spark1"})
        before = len(ran_on(toy))
        back = cluster.add("spark2")
        wait_beside(running, said, lambda: back.ended or "spark2" in ran_on(toy)[before:])
        assert not back.ended, back.log.read_text()
        running.send_signal(signal.SIGINT)
        running.wait()
    assert running.returncode == 130, said.read_text()
    assert "raylet" not in said.read_text(), "Ray's own words are for nobody"
    assert toy.loop(done(toy) + 4, *on(cluster)).returncode == 0
    check_campaign_complete(toy, done(toy))


def test_a_lost_head_ends_a_session_that_resumes(cluster: LocalCluster, tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.environment["RAY_gcs_rpc_server_reconnect_timeout_s"] = "10"
    night, said = toy.start_night(*on(cluster))
    with killed_after(night) as running:
        wait_beside(running, said, lambda: done(toy) >= 2)
        cluster.nodes["head"].lose()
        running.wait()
    assert running.returncode == 1, said.read_text()
    wait_until(lambda: cluster.trial_processes() == [])
    cluster.begin_anew()
    assert toy.loop(done(toy) + 4, *on(cluster)).returncode == 0
    check_campaign_complete(toy, done(toy))
