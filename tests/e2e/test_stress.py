"""Give the search's best configs long runs, through the installed command with real trials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.campaigns import Toy
from tests.support.waiting import wait_until
from trajectory.journal import read_rows
from trajectory.rows import FinalistsRow, StressRow


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def stress(toy: Toy, *options: str) -> subprocess.CompletedProcess[str]:
    return toy.run("stress", f"--campaign={toy.campaign}", *options)


def start(toy: Toy, *options: str) -> subprocess.Popen[str]:
    command = [toy.arguments(1)[0], "stress", f"--campaign={toy.campaign}", *options]
    return subprocess.Popen(
        command,
        cwd=toy.home,
        env=toy.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rows_of(toy: Toy, kind: str) -> list[dict[str, Any]]:
    return [row for row in toy.rows() if row["kind"] == kind]


def long_runs(toy: Toy) -> list[tuple[str, int, int]]:
    return [
        (row["config_hash"], row["trial"]["seed"], row["steps"]) for row in rows_of(toy, "stress")
    ]


def top(toy: Toy) -> dict[str, Any]:
    done = toy.run("top", "--k=50", "--json", f"--campaign={toy.campaign}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_whole_test_its_rows_and_its_files(toy: Toy) -> None:
    assert toy.loop(5).returncode == 0
    before = top(toy)
    assert before["ranking"] is None
    done = stress(toy, "--top=2", "--steps=60", "--seeds=2", "--spread=5")
    assert done.returncode == 0, done.stderr

    rows = list(read_rows(toy.campaign / "trajectory.jsonl"))
    stressed = [row for row in rows if isinstance(row, StressRow)]
    configs = len({row.config_hash for row in stressed})
    assert len(stressed) == 2 * configs == len(set(long_runs(toy)))
    assert {row.trial.seed for row in stressed} == {900, 901}
    assert {"candidate", "spread"} <= {row.purpose for row in stressed}
    for row in stressed:
        spec = json.loads((toy.campaign / f"trials/{row.trial.trial_id}/spec.json").read_text())
        assert spec["budget"] == {"unit": "steps", "amount": 60}
        assert spec["horizon_steps"] is None
        assert spec["limits"]["wall_s"] == 10 * 1800
        curve = (toy.campaign / f"trials/{row.trial.trial_id}/curve.jsonl").read_text()
        assert len(curve.splitlines()) == 60
    ended = rows[-1]
    assert isinstance(ended, FinalistsRow)
    means = [finalist.val_bpb for finalist in ended.finalists]
    assert means == sorted(means)
    assert len(ended.spread) == 5

    for suffix in ("png", "svg"):
        assert (toy.campaign / f"stress-60.{suffix}").stat().st_size > 1000
    shown = done.stdout
    assert "step    50 of 60" in shown and "step    60 of 60" in shown
    assert "by the pace of the short runs" in shown
    assert "Spearman" in shown and "Kendall" in shown and "n = 5" in shown

    # The short runs' ranking is unchanged, and the test of the ranking is shown from now on.
    after = top(toy)
    assert after["configs"] == before["configs"]
    assert after["sigma"] == before["sigma"]
    assert after["ranking"]["n"] == 5
    plain = toy.run("top", f"--campaign={toy.campaign}").stdout
    assert "a coin gives 50%" in plain
    assert toy.run("reindex", f"--campaign={toy.campaign}").returncode == 0
    assert top(toy) == after


@pytest.mark.slow
def test_what_was_run_is_not_run_again_and_more_seeds_add_to_it(toy: Toy) -> None:
    assert toy.loop(3).returncode == 0
    assert stress(toy, "--top=1", "--steps=50", "--seeds=1").returncode == 0
    first = (toy.campaign / "trajectory.jsonl").read_bytes()
    again = stress(toy, "--top=1", "--steps=50", "--seeds=1")
    assert again.returncode == 0, again.stderr
    assert "nothing is left to run" in again.stdout
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == first
    before = long_runs(toy)
    more = stress(toy, "--top=1", "--steps=50", "--seeds=2", "--json")
    assert more.returncode == 0, more.stderr
    assert long_runs(toy)[: len(before)] == before
    assert [seed for _, seed, _ in long_runs(toy)[len(before) :]] == [901] * len(before)
    found = json.loads(more.stdout)
    assert [len(entry["runs"]) for entry in found["configs"]] == [2] * len(before)
    assert found["finalists"][0]["runs"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2])
def test_the_best_of_the_first_seed_get_the_others(toy: Toy, lanes: int) -> None:
    """This holds for any ranking by short runs, and whenever the first seed ran."""
    assert toy.loop(6, "--lanes", str(lanes)).returncode == 0
    ranked = [entry["config_hash"] for entry in top(toy)["configs"]]
    baseline = next(row for row in toy.rows() if row["kind"] == "baseline")["config_hash"]
    options = ("--first=4", "--steps=50")
    assert stress(toy, *options, "--top=4", "--seeds=1").returncode == 0
    scores = {
        row["config_hash"]: row["trial"]["result"]["val_bpb"] for row in rows_of(toy, "stress")
    }
    leaders = sorted((name for name in scores if name in ranked[:4]), key=lambda one: scores[one])
    before = long_runs(toy)
    assert set(ranked[:4]) <= {name for name, _, _ in before}

    done = stress(toy, *options, "--top=1", "--seeds=3", "--json")
    assert done.returncode == 0, done.stderr
    more = long_runs(toy)[len(before) :]
    assert {seed for _, seed, _ in more} == {901, 902}
    assert {name for name, _, _ in more} == {leaders[0], baseline}
    assert len(more) == 4
    found = json.loads(done.stdout)["finalists"]
    assert len(found) == 1
    assert found[0]["runs"] == 3


@pytest.mark.slow
def test_in_one_go_the_first_seed_says_who_goes_on(toy: Toy) -> None:
    assert toy.loop(6).returncode == 0
    done = stress(toy, "--first=4", "--top=1", "--steps=50", "--no-baseline")
    assert done.returncode == 0, done.stderr
    assert "the other seeds are for the best 1 of these 4 on seed 900" in done.stdout
    assert "seed 900 chose who got the others" in done.stdout
    first = [row for row in rows_of(toy, "stress") if row["trial"]["seed"] == 900]
    best = min(first, key=lambda row: row["trial"]["result"]["val_bpb"])["config_hash"]
    assert len(first) == 4
    assert long_runs(toy)[4:] == [(best, 901, 50)]


@pytest.mark.slow
def test_killed_in_a_run_only_that_run_is_run_again(toy: Toy) -> None:
    assert toy.loop(3).returncode == 0
    options = ("--top=2", "--steps=1500", "--seeds=1")
    running = start(toy, *options)
    wait_until(lambda: len(rows_of(toy, "stress")) == 1)
    trials = toy.campaign / "trials"
    wait_until(lambda: any(not (t / "result.json").exists() for t in trials.glob("t*")))
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    kept = rows_of(toy, "stress")
    (lost,) = [t.name for t in trials.glob("t*") if not (t / "result.json").exists()]

    # The loop may run in between: it reports the trial that was cut short and ignores long runs.
    assert toy.loop(4).returncode == 0
    resumed = stress(toy, *options)
    assert resumed.returncode == 0, resumed.stderr
    assert "1 of them in the journal" in resumed.stdout
    assert rows_of(toy, "stress")[: len(kept)] == kept
    assert len(set(long_runs(toy))) == len(long_runs(toy))
    counted = [row["trial"]["trial_id"] for row in rows_of(toy, "stress")]
    assert lost not in counted
    assert [row["trial_ids"] for row in rows_of(toy, "event")] == [[lost]]


@pytest.mark.slow
def test_a_long_run_that_finished_without_its_row_is_taken_up(toy: Toy) -> None:
    """A kill between a result and its row leaves this state; the loop in between keeps it."""
    assert toy.loop(3).returncode == 0
    options = ("--steps=50", "--seeds=1", "--no-baseline")
    assert stress(toy, "--top=1", *options).returncode == 0
    journal = toy.campaign / "trajectory.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    row = json.loads(lines[-2])
    assert row["kind"] == "stress"
    journal.write_bytes(b"".join(lines[:-2]))
    assert toy.loop(4).returncode == 0
    assert not rows_of(toy, "event")
    resumed = stress(toy, "--top=50", *options)
    assert resumed.returncode == 0, resumed.stderr
    (again,) = [r for r in rows_of(toy, "stress") if r["config_hash"] == row["config_hash"]]
    assert again["trial"]["trial_id"] == row["trial"]["trial_id"]
    assert again["trial"]["result"] == row["trial"]["result"]
    assert again["energy_wh"] is None


@pytest.mark.slow
def test_one_signal_finishes_the_run_and_says_how_to_go_on(toy: Toy) -> None:
    assert toy.loop(2).returncode == 0
    running = start(toy, "--top=2", "--steps=1500", "--seeds=1")
    before = len(list((toy.campaign / "trials").glob("t*")))
    wait_until(lambda: len(list((toy.campaign / "trials").glob("t*"))) > before)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate()
    assert running.returncode == 130, output
    assert output.splitlines()[-1].split()[:2] == ["autoresearch", "stress"]
    assert len(rows_of(toy, "stress")) == 1


@pytest.mark.slow
def test_a_pause_file_pauses_it(toy: Toy) -> None:
    assert toy.loop(2).returncode == 0
    (toy.campaign / "pause").touch()
    running = start(toy, "--top=1", "--steps=50", "--seeds=1", "--no-baseline")
    wait_until(lambda: bool(rows_of(toy, "event")))
    assert not rows_of(toy, "stress")
    (toy.campaign / "pause").unlink()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert [row["event"] for row in rows_of(toy, "event")] == ["paused", "resumed"]
    assert len(rows_of(toy, "stress")) == 1


@pytest.mark.slow
def test_a_campaign_in_tokens_stresses_equal_tokens(toy: Toy) -> None:
    toy.menu.write_text(toy.menu.read_text().replace('"6 steps"', '"768 tokens"'))
    assert toy.loop(1).returncode == 0
    done = stress(toy, "--top=1", "--steps=50", "--seeds=1", "--no-baseline")
    assert done.returncode == 0, done.stderr
    (row,) = rows_of(toy, "stress")
    assert row["trial"]["result"]["tokens"] == 50 * 4 * 32


@pytest.mark.slow
def test_a_journal_of_the_first_format_says_that_another_follows(toy: Toy) -> None:
    assert toy.loop(1).returncode == 0
    journal = toy.campaign / "trajectory.jsonl"
    journal.write_text(journal.read_text("utf-8").replace('"schema":4', '"schema":1', 1), "utf-8")
    for _ in range(2):
        done = stress(toy, "--top=1", "--steps=50", "--seeds=1", "--no-baseline")
        assert done.returncode == 0, done.stderr
    kinds = [row["kind"] for row in toy.rows()]
    place = kinds.index("stress")
    assert kinds[place - 1] == "event"
    assert "format 4" in toy.rows()[place - 1]["why"]
    assert kinds.count("event") == 1


def test_without_a_campaign_it_is_refused_in_one_sentence(toy: Toy) -> None:
    refused = stress(toy)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1
    assert not toy.campaign.exists()


@pytest.mark.slow
def test_with_nothing_measured_it_is_refused(toy: Toy) -> None:
    toy.menu.write_text(toy.menu.read_text().replace("[campaign]", "[campaign]\nwall_s = 0.5"))
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", "100000 steps"))
    assert toy.loop(1).returncode == 1
    refused = stress(toy)
    assert refused.returncode == 1
    assert "run autoresearch loop first" in refused.stderr
