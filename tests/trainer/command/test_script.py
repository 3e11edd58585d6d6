"""A script's directory is hashed in part, and a trial receives what it needs of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import command, script
from trainer.command.tree import code_sha256
from trainer.command.workspace import Reach


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return script(tmp_path / "own", "print(1)")


def test_settings_are_hashed_and_data_are_not(own: Path) -> None:
    (own / "config.yaml").write_text("lr: 1")
    before = code_sha256(own, own / "runs")
    assert before[1] == 2
    (own / "data.json").write_text(" " * ((1 << 20) + 1))
    (own / "log.txt").write_text("x")
    (own / "menu.toml").write_text("name = 'own'\n[trainer]\n")
    assert code_sha256(own, own / "runs") == before
    (own / "config.yaml").write_text("lr: 2")
    assert code_sha256(own, own / "runs") != before


@pytest.mark.parametrize("mark", ["trajectory.jsonl", "campaign.lock"])
def test_another_campaign_in_the_checkout_is_not_the_script(own: Path, mark: str) -> None:
    before = code_sha256(own, own / "runs" / "b")
    work = script(own / "runs" / "a" / "trials" / "t000001", "print(2)")
    assert code_sha256(own, own / "runs" / "b") != before
    (work.parent.parent / mark).touch()
    assert code_sha256(own, own / "runs" / "b") == before


def test_a_link_to_a_hidden_file_is_as_hidden(own: Path, tmp_path: Path) -> None:
    (own / ".env").write_text("KEY=1")
    (own / "plainlink").symlink_to(".env")
    reach = Reach.of(command(directory=str(own)), tmp_path / "c" / "trials" / "t000001")
    assert [entry.name for entry in reach.entries] == ["train.py"]


def test_what_an_edited_campaign_writes_is_no_code_of_anothers_script(own: Path) -> None:
    before = code_sha256(own, own / "runs" / "b")
    campaign = script(own / "runs" / "a", "", "campaign.lock")
    script(campaign, "lr = 1", "campaign.toml")
    script(campaign / "trials" / "t000001" / "tmp" / "work", "lr = 2")
    script(campaign / "export", "{}", "best.json")
    assert code_sha256(own, own / "runs" / "b") == before
