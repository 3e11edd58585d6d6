"""Check that scheduling leaves the rows of one lane as they were, and loses no trial of several."""

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from agent.search.campaign import Campaign
from agent.search.campaign_settings import new_settings
from agent.search.scribe import Scribe
from agent.search.stopping import Goal, StopRequest
from tests.support import nights
from tests.support.nights import WORLD, rows_of
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.night import no_corpus
from trajectory.evidence import Evidence
from trajectory.history import tables
from trajectory.journal import read_rows
from trajectory.rows import EventRow, IterationRow
from trajectory.rules import Rules

BEFORE = Path(__file__).parent / "fixtures" / "one_lane.jsonl"
"""Rows written by the last version without lanes, without their clocks."""


def test_the_rows_are_those_of_before_to_the_last_bit(tmp_path: Path) -> None:
    before = [json.loads(line) for line in BEFORE.read_text("utf-8").splitlines()]
    rows = rows_of(
        tmp_path, 30, rules=Rules(z_drop=1.0, early_stopping_threshold=0.35)
    )  # as shipped then
    assert rows[0].pop("z_drop") == 1.0, "older first rows do not say it"
    for first in (rows[0], before[0]):  # the shipped menu has named its device since then
        del first["menu_toml"], first["menu_sha256"]
    assert [row["kind"] for row in rows] == [row["kind"] for row in before]
    for ours, theirs in zip(rows, before, strict=True):
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


class Bunched(SimulatedExecutor):
    """Let several trials end while the loop is busy, as real trials do."""

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        for _ in range(self.places):
            super().wait(threading.Event(), timeout_s)


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "seed"), [(4, 3), (8, 6)])
def test_what_is_kept_has_beaten_the_reference_that_its_row_replaces(
    lanes: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "SimulatedExecutor", Bunched)
    nights.work(tmp_path, Goal(iterations=40), lanes=lanes, seed=seed)
    evidence, kept = Evidence(), 0
    for row in read_rows(tmp_path / "campaign" / "trajectory.jsonl"):
        if isinstance(row, IterationRow) and row.decision.action == "keep":
            kept += 1
            assert row.decision.reference_hash == evidence.incumbent_hash, f"iteration {row.iter}"
        evidence.add(row)
    assert kept, "in this world some are kept, or nothing was tested"
