"""Whether a campaign's account of itself adds up, whatever was killed meanwhile."""

from __future__ import annotations

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

Tables = dict[str, list[tuple[object, ...]]]


def dump(where: str | Path) -> Tables:
    """Every row of every table of a history, all of one moment."""
    engine = tables.connect(where, readonly=True)
    try:
        with engine.connect() as connection:
            return {
                table.name: sorted(tuple(row) for row in connection.execute(sa.select(table)))
                for table in tables.metadata.sorted_tables
            }
    finally:
        engine.dispose()


def rebuilt(journal: Path, length: int | None = None) -> Tables:
    """Every row of a history made anew of the journal's first so many bytes; None: of all."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, JOURNAL_FILE)
        copy.write_bytes(journal.read_bytes()[:length])
        History.open(copy.with_name(HISTORY_FILE), copy).close()
        return dump(copy.with_name(HISTORY_FILE))


def index_faults(campaign: Path, where: str | Path | None = None) -> list[str]:
    """What a history has otherwise than one that is made anew of as much of the journal: it may be
    behind, but not wrong. The campaign's own, or the one at ``where``."""
    where = where or campaign / HISTORY_FILE
    found = dump(where)
    if not found[tables.campaigns.name]:
        return []  # no row has been indexed yet
    [(_id, length, *_others)] = found[tables.campaigns.name]
    assert isinstance(length, int)
    anew = rebuilt(campaign / JOURNAL_FILE, length)
    return [f"{name} is not as made anew" for name, there in found.items() if there != anew[name]]


def row_faults(rows: Iterable[dict[str, Any]]) -> list[str]:
    """What no journal may hold, of a campaign at work or at rest."""
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
    """All that a campaign at rest, which reached its last iteration, may not show."""
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


def nothing_is_amiss(toy: Toy, iterations: int) -> None:
    """A campaign at rest has its iterations up to this one, each trial in one row, and an index as
    ``reindex`` makes it."""
    assert sorted(row["iter"] for row in toy.iterations()) == list(range(1, iterations + 1))
    assert rest_faults(toy.campaign) == []
    before = toy.run("top", "--k", "50", "--json", f"--campaign={toy.campaign}").stdout
    (toy.campaign / HISTORY_FILE).unlink()
    assert toy.run("reindex", f"--campaign={toy.campaign}").returncode == 0
    assert toy.run("top", "--k", "50", "--json", f"--campaign={toy.campaign}").stdout == before


def _counted(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Ids of trials that are evidence, or were none for a reason of their own."""
    of_rows = {"baseline": lambda row: [row["trial"]], "iteration": lambda row: row["trials"]}
    return [
        trial["trial_id"]
        for row in rows
        if row["kind"] in of_rows
        for trial in of_rows[row["kind"]](row)
    ]


def _dropped(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Ids of trials that count for nothing."""
    return [one for row in rows if row["kind"] == "event" for one in row["trial_ids"]]
