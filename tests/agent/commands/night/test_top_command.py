"""Test ``autoresearch top`` as a person runs it."""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path

import pytest

from agent.menu.files import load_menu
from tests.support.campaigns import Toy
from tests.support.places import ROOT
from tests.support.rows import Simulator, write_journal
from trajectory.reading import SHORT_BYTES
from trajectory.rows import CampaignRow

DEMO = ROOT / "docs" / "demo" / "trajectory.jsonl"


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    toy.campaign.mkdir(parents=True)
    shutil.copy(DEMO, toy.campaign)
    return toy


def test_what_is_not_ranked_is_counted(toy: Toy) -> None:
    journal = toy.campaign / "trajectory.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    first = json.loads(toy.run("top", "--k=1", "--json", f"--campaign={toy.campaign}").stdout)
    (best,) = first["configs"]
    assert first["unranked"] == {"failed": 0, "same": 0}
    for row in rows:
        if row.get("iter") == best["iter"]:
            last = row["trials"][-1]
            last["result"] = {"status": "nonfinite", "message": "nan at step 7", "steps": 6}
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = json.loads(toy.run("top", "--k=9", "--json", f"--campaign={toy.campaign}").stdout)
    assert told["unranked"] == {"failed": 1, "same": 0}
    assert best["config_hash"] not in {one["config_hash"] for one in told["configs"]}
    said = " ".join(toy.run("top", "--k=3", f"--campaign={toy.campaign}").stdout.split())
    assert "not ranked: 1 config that failed on one of the seeds" in said


def test_a_history_that_cannot_be_used_is_named_where_it_is_needed(toy: Toy) -> None:
    toy.environment["AUTORESEARCH_HISTORY_URL"] = "sqlite:////proc/nowhere/h.sqlite"
    done = toy.run("top", "--k=1", f"--campaign={toy.campaign}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nowhere" not in done.stdout

    journal = toy.campaign / "trajectory.jsonl"
    rows = Simulator(1).rows(4200)
    first = next(rows)
    assert isinstance(first, CampaignRow)
    menu = load_menu("cpu-tiny").toml
    write_journal(journal, chain([first.model_copy(update={"menu_toml": menu})], rows))
    assert journal.stat().st_size > SHORT_BYTES
    done = toy.run("top", "--k=1", f"--campaign={toy.campaign}")
    assert done.returncode == 0, done.stderr
