"""Confirm the best of a search on fresh seeds and fresh text, through the installed command."""

import json
import subprocess
from typing import Any

import pytest

from tests.support.campaigns import Toy
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
