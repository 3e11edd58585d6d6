"""Which campaigns are on the board."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.trajectory.live.server import simulated, write_campaign
from trajectory.live.board import FIND_EVERY, Board


def look(board: Board) -> list[str]:
    """Poll until campaigns were looked for again; their names."""
    for _ in range(FIND_EVERY):
        board.poll()
    return list(board.campaigns)


def test_campaigns_come_and_go(tmp_path: Path) -> None:
    board = Board([tmp_path], ("true",))
    assert look(board) == []
    write_campaign(tmp_path / "one", simulated(3))
    write_campaign(tmp_path / "two", simulated(3))
    assert look(board) == ["one", "two"]
    kept = board.campaigns["two"]
    shutil.rmtree(tmp_path / "one")
    assert look(board) == ["two"]
    assert board.campaigns["two"] is kept


def test_a_folder_in_the_making_is_no_campaign(tmp_path: Path) -> None:
    write_campaign(tmp_path / ".one.x7", simulated(3))
    assert look(Board([tmp_path], ("true",))) == []


def test_what_cannot_be_looked_into_hides_nothing_else(tmp_path: Path) -> None:
    write_campaign(tmp_path / "good", simulated(3))
    (tmp_path / "a-loop").symlink_to("a-loop")
    (tmp_path / "a-file").write_text("", "utf-8")
    campaign = tmp_path / "odd"
    write_campaign(campaign, simulated(3))
    (campaign / "trials").write_text("no directory", "utf-8")
    assert look(Board([tmp_path, tmp_path / "nowhere"], ("true",))) == ["good", "odd"]
