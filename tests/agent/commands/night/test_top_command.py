"""``autoresearch top``, as a person runs it."""

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


def test_it_says_which_config_the_loop_goes_on_from(toy: Toy) -> None:
    def said(k: int) -> str:
        return " ".join(toy.run("top", f"--k={k}", f"--campaign={toy.campaign}").stdout.split())

    assert "goes on from its incumbent, number 2, iteration 83" in said(3)
    assert "goes on from its incumbent, which is not among these" in said(1)
    told = json.loads(toy.run("top", "--k=3", "--json", f"--campaign={toy.campaign}").stdout)
    assert told["incumbent"] == told["configs"][1]["config_hash"]


def test_it_says_so_where_nothing_was_kept(toy: Toy) -> None:
    journal = toy.campaign / "trajectory.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:9]))
    said = " ".join(toy.run("top", "--k=1", f"--campaign={toy.campaign}").stdout.split())
    assert "goes on from the baseline, which nothing has beaten in a race yet" in said


def test_a_history_that_cannot_be_used_is_named_where_it_is_needed(toy: Toy) -> None:
    """A short journal is read itself, whatever became of its index."""
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
    assert "the history sqlite:////proc/nowhere/h.sqlite is not one of" in done.stdout
