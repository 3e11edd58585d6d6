"""Confirm the best of a search on fresh seeds and fresh text, through the installed command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.campaigns import Toy, killed_after
from tests.support.waiting import wait_until
from trajectory.journal import read_rows
from trajectory.rows import ConfirmRow

pytestmark = pytest.mark.slow


def confirm(toy: Toy, *options: str) -> subprocess.CompletedProcess[str]:
    return toy.run("confirm", f"--campaign={toy.campaign}", *options)


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def fresh_runs(toy: Toy) -> list[ConfirmRow]:
    rows = read_rows(toy.campaign / "trajectory.jsonl")
    return [row for row in rows if isinstance(row, ConfirmRow)]


def top(toy: Toy) -> dict[str, Any]:
    return said(toy.run("top", "--k=50", "--json", f"--campaign={toy.campaign}"))


def test_a_search_ends_with_its_confirmation(toy: Toy) -> None:
    toy.begun(6)
    before = top(toy)
    assert any(row["decision"]["action"] == "keep" for row in toy.iterations())
    assert before["confirmed"] is None

    found = said(toy.loop(6, "--confirm", "--json"))["confirmed"]
    runs = fresh_runs(toy)
    finalists = len(found["configs"])
    assert len(runs) == 6 * (finalists + 1)
    used = {seed for entry in before["configs"] for seed in entry["seeds"]}
    assert {row.trial.seed for row in runs} == set(found["seeds"])
    assert not used & set(found["seeds"])
    assert {row.trial.role for row in runs} == {"confirm"}
    assert {row.seeds for row in runs} == {6}
    for row in runs:
        result = row.trial.result
        assert result.status == "ok"
        assert [text.sha256 for text in result.texts] == [found["texts"][0]["sha256"]]
    # The mean paired difference on the search's own text, computed by hand.
    by = {(row.config_hash, row.trial.seed): row.trial.objective or 0.0 for row in runs}
    baseline = next(e["config_hash"] for e in before["configs"] if not e["vs_baseline"])
    chosen = found["configs"][0]
    assert chosen["config_hash"] == next(
        e["config_hash"] for e in before["configs"] if e["vs_baseline"]
    )
    differences = [by[chosen["config_hash"], seed] - by[baseline, seed] for seed in found["seeds"]]
    assert chosen["gains"][0]["delta"] == pytest.approx(sum(differences) / 6)

    # The confirmation counts in no ranking, and the search's claim is shown beside it.
    after = top(toy)
    strip = [{k: v for k, v in entry.items() if k != "confirmed"} for entry in after["configs"]]
    assert strip == [{k: v for k, v in e.items() if k != "confirmed"} for e in before["configs"]]
    assert after["confirmed"] == found
    told = next(e for e in after["configs"] if e["config_hash"] == chosen["config_hash"])
    assert told["confirmed"]["claimed"] == told["delta_vs_baseline"]

    # A repeated command runs nothing again, even after the index is gone.
    rows = toy.rows()
    (toy.campaign / "history.sqlite").unlink()
    assert said(confirm(toy, "--json")) == found
    assert toy.rows() == rows

    # Fewer seeds would be a choice among these; more are another interim analysis, which needs
    # stronger evidence.
    fewer = confirm(toy, "--seeds=3")
    assert fewer.returncode == 1
    more = said(confirm(toy, "--seeds=7", "--json"))
    assert (found["earlier_analyses"], more["earlier_analyses"]) == (0, 1)
    assert said(confirm(toy, "--seeds=7", "--json")) == more
    found, chosen = more, more["configs"][0]

    # The page shows the confirmed gain.
    assert toy.run("report", f"--campaign={toy.campaign}").returncode == 0
    page = (toy.campaign / "report" / "report.html").read_text("utf-8")
    gain = f"{chosen['gains'][1]['delta']:+.4f}".replace("-", "\N{MINUS SIGN}")
    assert f"<b>{gain}</b>" in page


def test_killed_at_any_run_it_goes_on_to_the_same_end(toy: Toy, tmp_path: Path) -> None:
    toy.begun(4)
    twin = Toy(tmp_path / "twin").begun(4)
    whole = said(confirm(twin, "--seeds=3", "--json"))

    for rows in (2, 5):
        with killed_after(toy.started("confirm", "--seeds=3", f"--campaign={toy.campaign}")):
            wait_until(lambda rows=rows: len(fresh_runs(toy)) >= rows)
    assert said(confirm(toy, "--seeds=3", "--json")) == whole
    runs = [(row.config_hash, row.trial.seed) for row in fresh_runs(toy)]
    assert len(runs) == len(set(runs))
    ends = [[row["found"] for row in one.rows("confirmed")] for one in (toy, twin)]
    assert ends[0] == ends[1]
    scores = {(r.config_hash, r.trial.seed): r.trial.objective for r in fresh_runs(toy)}
    assert scores == {(r.config_hash, r.trial.seed): r.trial.objective for r in fresh_runs(twin)}

    # The search resumes where it was, and does not use the fresh runs as its own.
    assert toy.loop(5).returncode == 0
    assert len(toy.iterations()) == 5


def test_texts_set_aside_by_the_search_and_others_are_scored(toy: Toy) -> None:
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
    found = said(confirm(toy, "--top=1", "--seeds=2", f"--heldout={other}", "--json"))
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
    fewer = said(confirm(toy, "--top=1", "--seeds=2", "--json"))
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
