"""The board lists the campaigns it finds."""

import shutil
from pathlib import Path

import pytest

from tests.trajectory.live.server import client, simulated, write_campaign
from trajectory.live.board import FIND_EVERY, Board
from trajectory.live.brief import Brief
from trajectory.live.follower import Follower


def look(board: Board) -> list[str]:
    """Poll until the board searches for campaigns again; return their names."""
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


def test_what_cannot_be_looked_into_hides_nothing_else(tmp_path: Path) -> None:
    write_campaign(tmp_path / "good", simulated(3))
    write_campaign(tmp_path / ".in-the-making.x7", simulated(3))
    (tmp_path / "a-loop").symlink_to("a-loop")
    (tmp_path / "a-file").write_text("", "utf-8")
    campaign = tmp_path / "odd"
    write_campaign(campaign, simulated(3))
    (campaign / "trials").write_text("no directory", "utf-8")
    assert look(Board([tmp_path, tmp_path / "nowhere"], ("true",))) == ["good", "odd"]


def test_a_broken_campaign_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        write_campaign(tmp_path / name, simulated(3))
    poll = Follower.poll

    def failing(follower: Follower) -> list[Brief]:
        if follower.directory.name == "bad":
            raise RuntimeError("nobody thought\nof this")
        return poll(follower)

    monkeypatch.setattr(Follower, "poll", failing)
    board = Board([tmp_path], ("true",))
    board.poll()
    assert "\n" not in (board.campaigns["bad"].error or "\n")
    assert len(board.campaigns["good"].follower.briefs) == 3


def test_health_is_the_followers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = client(tmp_path)
    assert asked.get("/healthz").json() == {"status": "ok"}
    monkeypatch.setattr("trajectory.live.interface.STALLED_S", -1.0)
    stalled = asked.get("/healthz")
    assert (stalled.status_code, stalled.json()) == (503, {"status": "stalled"})
