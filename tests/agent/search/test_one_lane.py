import json
import sqlite3
from pathlib import Path

import pytest

from agent.menu.files import parse_menu
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.scribe import Scribe
from agent.search.stopping import StopRequest
from tests.support import nights
from tests.support.nights import WORLD, rows_of
from tests.support.simulated.night import no_corpus
from tests.support.worlds import RateWorld
from trajectory.history import tables
from trajectory.rows import EventRow, Rules

BEFORE = Path(__file__).parent / "fixtures" / "one_lane.jsonl"
"""Rows written with one lane when the judge's comparison last changed, without their clocks."""


def test_the_rows_are_those_of_before_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [json.loads(line) for line in BEFORE.read_text("utf-8").splitlines()]
    world = RateWorld(0.05, curves=True)
    world.menu = parse_menu(before[0]["menu_toml"], "the menu of then")
    monkeypatch.setattr(nights, "WORLD", world)
    rows = rows_of(tmp_path, 30, rules=Rules(z_keep=1.3, z_drop=1.0, early_stopping_threshold=0.35))
    for first in (rows[0], before[0]):
        del first["menu_toml"], first["menu_sha256"]
    del before[0]["compile"]  # no choice any more
    assert [row["kind"] for row in rows] == [row["kind"] for row in before]
    for ours, theirs in zip(rows, before, strict=True):
        for row in (ours, theirs):
            row.get("decision", {}).pop("explanation", None)  # the wording may change
        assert ours == theirs
    decided = [row["decision"] for row in before if row["kind"] == "iteration"]
    assert {one["action"] for one in decided} == {"keep", "discard"}
    assert {one["pairs"] for one in decided} == {1, 2, 3, 4}, "races of every length are among them"


REFUSED = (
    f"CREATE TRIGGER refusing BEFORE INSERT ON {tables.rows.name} "
    "BEGIN SELECT RAISE(ABORT, 'away'); END"
)


def test_that_the_index_lags_is_said_once_until_it_has_caught_up(tmp_path: Path) -> None:
    settings = new_settings(WORLD.menu, WORLD.menu.name, {})
    notes: list[str] = []
    with Campaign(
        tmp_path / "campaign", settings, WORLD.menu, no_corpus(tmp_path), sandbox="simulated"
    ) as campaign:
        scribe = Scribe(campaign, StopRequest(), notes.append)
        for outage in (1, 2):
            change(campaign, REFUSED)
            for why in ("a", "b", "c"):
                scribe.record(EventRow(at="2026-01-05T22:02:13.000+00:00", event="note", why=why))
            assert len(notes) == outage
            change(campaign, "DROP TRIGGER refusing")
            scribe.record(EventRow(at="2026-01-05T22:02:14.000+00:00", event="note", why="back"))
            assert len(campaign.results.newest(EventRow)) == 4 * outage
        assert len(notes) == 2


def change(campaign: Campaign, statement: str) -> None:
    with sqlite3.connect(campaign.directory / "history.sqlite") as index:
        index.execute(statement)
    index.close()
