import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated.commands import SimulatedToy
from tests.support.timed import Killed
from trainer.schema import TrialSpec
from trajectory.journal import read_rows
from trajectory.rows import ConfirmRow

TOP_1 = ("--top=1", "--seeds=2")


def confirm(toy: SimulatedToy, *options: str) -> subprocess.CompletedProcess[str]:
    return toy.run("confirm", f"--campaign={toy.campaign}", *options)


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def fresh_runs(toy: SimulatedToy) -> list[ConfirmRow]:
    rows = read_rows(toy.campaign / "trajectory.jsonl")
    return [row for row in rows if isinstance(row, ConfirmRow)]


def kills_at(trial: int) -> Callable[[TrialSpec], None]:
    """Return a function that kills the command at this trial of the process."""
    left = trial

    def at_trial(_spec: TrialSpec) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    return at_trial


def test_killed_at_any_run_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    toy, twin = SimulatedToy(tmp_path / "toy"), SimulatedToy(tmp_path / "twin")
    for one in (toy, twin):
        assert one.loop(4).returncode == 0
    whole = said(confirm(twin, "--seeds=3", "--json"))
    for run in (3, 4):
        killed = SimulatedToy(tmp_path / "toy", kills_at(run))
        with pytest.raises(Killed):
            confirm(killed, "--seeds=3")
    assert 2 + 3 <= len(fresh_runs(toy)) < len(fresh_runs(twin))
    assert said(confirm(toy, "--seeds=3", "--json")) == whole
    runs = [(row.config_hash, row.trial.seed) for row in fresh_runs(toy)]
    assert len(runs) == len(set(runs))
    ends = [[row["found"] for row in one.rows("confirmed")] for one in (toy, twin)]
    assert ends[0] == ends[1]
    scores = {(r.config_hash, r.trial.seed): r.trial.objective for r in fresh_runs(toy)}
    assert scores == {(r.config_hash, r.trial.seed): r.trial.objective for r in fresh_runs(twin)}

    # A repeated command runs nothing again, even after the index is gone. Fewer seeds would be a
    # choice among these; more are another interim analysis, which needs stronger evidence.
    rows = toy.rows()
    (toy.campaign / "history.sqlite").unlink()
    assert said(confirm(toy, "--seeds=3", "--json")) == whole
    assert toy.rows() == rows
    assert confirm(toy, "--seeds=2").returncode == 1
    more = said(confirm(toy, "--seeds=4", "--json"))
    assert (whole["earlier_analyses"], more["earlier_analyses"]) == (0, 1)

    # The page shows the confirmed gain.
    assert toy.run("report", f"--campaign={toy.campaign}").returncode == 0
    page = (toy.campaign / "report" / "report.html").read_text("utf-8")
    gain = f"{more['configs'][0]['gains'][1]['delta']:+.4f}".replace("-", "\N{MINUS SIGN}")
    assert f"<b>{gain}</b>" in page

    # The search resumes where it was, and does not use the fresh runs as its own.
    assert toy.loop(5).returncode == 0
    assert len(toy.iterations()) == 5


def test_texts_set_aside_by_the_search_and_others_are_scored(tmp_path: Path) -> None:
    toy = SimulatedToy(tmp_path)

    def searched(iterations: int, *more: str) -> subprocess.CompletedProcess[str]:
        return toy.loop(iterations, "--set=reserve_holdout=true", *more)

    assert searched(0).returncode == 0
    assert confirm(toy).returncode == 1, "there is nothing to confirm"
    assert searched(3).returncode == 0
    first = toy.rows()[0]
    assert first["reserve_holdout"] is True
    orders = sorted((toy.campaign / "trials" / ".specs").glob("t??????.json"))
    held = {json.loads(order.read_text())["train_tokens"] for order in orders}

    # Trouble while confirming costs nothing of the search.
    (toy.campaign / "texts").write_text("in the way")
    night = said(searched(3, "--confirm", "--json"))
    assert night["iterations"] == 3
    assert night["confirmed"] is None
    assert night["not_confirmed"]
    (toy.campaign / "texts").unlink()

    other = toy.home / "other.txt"
    other.write_text("Quite another text, about ships and the sea.\n" * 40)
    found = said(confirm(toy, *TOP_1, f"--heldout={other}", "--json"))
    names = [text["name"] for text in found["texts"]]
    assert names == ["set aside", "other"]
    assert [gain["text"] for gain in found["configs"][0]["gains"]] == [
        "the search's text",
        *names,
    ]
    assert found["configs"][0]["gains"][2]["holds_for"] == "this text"
    runs = fresh_runs(toy)
    assert {row.train_tokens for row in runs} == held == {first["train_tokens"]}

    # Runs scored on more texts are reused for fewer of them.
    fewer = said(confirm(toy, *TOP_1, "--json"))
    assert len(fresh_runs(toy)) == len(runs)
    assert fewer["configs"][0]["gains"] == found["configs"][0]["gains"][:2]
    refused = confirm(toy, f"--heldout={toy.home / 'text' / '000.txt'}")
    assert refused.returncode == 1, "the search trained on it"

    assert toy.loop(4, "--set=reserve_holdout=false").returncode == 1
    journal = toy.campaign / "trajectory.jsonl"
    changed = json.dumps(first | {"train_tokens": first["train_tokens"] - 1})
    later = journal.read_text().split("\n", 1)[1]
    journal.write_text(f"{changed}\n{later}")
    assert toy.run("loop", "--iters=4", f"--campaign={toy.campaign}").returncode == 1
