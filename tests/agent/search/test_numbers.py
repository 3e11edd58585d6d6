"""Check that no iteration number is used twice, whatever the journal's index says."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agent.search.stopping import Goal
from tests.support.nights import rows_of, work, written


def test_an_index_with_other_numbers_does_not_give_one_again(tmp_path: Path) -> None:
    rows_of(tmp_path, 4)
    with sqlite3.connect(tmp_path / "campaign" / "history.sqlite") as index:
        changed = index.execute("UPDATE rows_v6 SET iter = 1 WHERE kind = 'iteration'").rowcount
    index.close()
    assert changed == 4
    work(tmp_path, Goal(iterations=7))
    numbers = [row["iter"] for row in written(tmp_path) if row["kind"] == "iteration"]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]
