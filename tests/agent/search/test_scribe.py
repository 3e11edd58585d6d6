"""Test the notes to a person while the index of a campaign cannot be written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agent.search.campaign import Campaign
from agent.search.campaign_settings import new_settings
from agent.search.scribe import Scribe
from agent.search.stopping import StopRequest
from tests.support.nights import WORLD
from tests.support.simulated.night import no_corpus
from trajectory.rows import EventRow

REFUSED = "CREATE TRIGGER refusing BEFORE INSERT ON rows_v6 BEGIN SELECT RAISE(ABORT, 'away'); END"


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
                scribe.index()  # nothing new, and the index lags as before
            assert len(notes) == outage
            change(campaign, "DROP TRIGGER refusing")
            scribe.record(EventRow(at="2026-01-05T22:02:14.000+00:00", event="note", why="back"))
            assert len(campaign.history.events()) == 4 * outage
        assert len(notes) == 2


def change(campaign: Campaign, statement: str) -> None:
    with sqlite3.connect(campaign.directory / "history.sqlite") as index:
        index.execute(statement)
    index.close()
