"""Check that a campaign's records agree with each other after any kill."""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from autoresearch.layout import HISTORY_FILE, IN_FLIGHT_DIR, JOURNAL_FILE, TRIALS_DIR
from tests.support.campaigns import Toy
from trajectory.history import tables
from trajectory.history.store import History

Rows = list[tuple[object, ...]]


def dump(where: str | Path) -> Rows:
    """Return every row of a history, all of one moment."""
    engine = tables.connect(where)
    try:
        with engine.connect() as connection:
            return sorted(tuple(row) for row in connection.execute(sa.select(tables.rows)))
    finally:
        engine.dispose()


def rebuilt(journal: Path) -> Rows:
    """Return every row of a history that is rebuilt from the journal."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, JOURNAL_FILE)
        copy.write_bytes(journal.read_bytes())
        with History(copy.with_name(HISTORY_FILE), copy) as history:
            history.catch_up()
        return dump(copy.with_name(HISTORY_FILE))


def history_faults(campaign: Path, where: str | Path | None = None) -> list[str]:
    """Return the differences between a history and the beginning of one rebuilt from the journal.

    The history may lag behind the journal, but it may not be wrong. ``where`` is the history's
    place, the campaign's own by default.
    """
    found = dump(where or campaign / HISTORY_FILE)
    anew = rebuilt(campaign / JOURNAL_FILE)
    return [] if found == anew[: len(found)] else ["the history is not as made anew"]


def row_faults(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the faults that no journal may have, of an active or a finished campaign."""
    rows = list(rows)
    numbers = [row["iter"] for row in rows if row["kind"] == "iteration"]
    counted, dropped = _counted(rows), _dropped(rows)
    faults = {
        "an iteration is there twice": len(set(numbers)) != len(numbers),
        "a trial counts twice": len(set(counted)) != len(counted),
        "a trial counts, and counts for nothing": bool(set(counted) & set(dropped)),
    }
    return [fault for fault, is_so in faults.items() if is_so]


def rest_faults(campaign: Path, where: str | Path | None = None) -> list[str]:
    """Return the faults that a campaign may not have after its last iteration."""
    journal = campaign / JOURNAL_FILE
    rows = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
    numbers = {row["iter"] for row in rows if row["kind"] == "iteration"}
    on_disk = {path.name for path in (campaign / TRIALS_DIR).glob("t*")}
    faults = {
        "an iteration is missing": numbers != set(range(1, len(numbers) + 1)),
        "a trial was dropped in silence": set(_counted(rows) + _dropped(rows)) != on_disk,
        "an iteration is in flight": any((campaign / IN_FLIGHT_DIR).glob("*.json")),
        "the history is not as made anew": dump(where or campaign / HISTORY_FILE)
        != rebuilt(journal),
    }
    return [*row_faults(rows), *(fault for fault, is_so in faults.items() if is_so)]


def check_campaign_complete(toy: Toy, iterations: int) -> None:
    """Check that a stopped campaign is complete: its iterations, its trials and its index.

    Iterations run up to this one, each trial is in one row, and ``reindex`` yields an equal index.
    """
    assert sorted(row["iter"] for row in toy.iterations()) == list(range(1, iterations + 1))
    assert rest_faults(toy.campaign) == []
    before = toy.run("top", "--k", "50", "--json", f"--campaign={toy.campaign}").stdout
    (toy.campaign / HISTORY_FILE).unlink()
    assert toy.run("reindex", f"--campaign={toy.campaign}").returncode == 0
    assert toy.run("top", "--k", "50", "--json", f"--campaign={toy.campaign}").stdout == before


def _counted(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids of trials in baseline and iteration rows, failed ones included."""
    of_rows = {"baseline": lambda row: [row["trial"]], "iteration": lambda row: row["trials"]}
    return [
        trial["trial_id"]
        for row in rows
        if row["kind"] in of_rows
        for trial in of_rows[row["kind"]](row)
    ]


def _dropped(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids of trials that are not counted."""
    return [one for row in rows if row["kind"] == "event" for one in row["trial_ids"]]
