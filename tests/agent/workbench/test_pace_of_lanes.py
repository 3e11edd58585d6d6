"""Test the pace on the screen: iterations per hour of wall time, on any number of lanes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.search.stopping import Goal
from agent.workbench.progress import Progress
from tests.support.configs import config
from tests.support.rows import iteration_row


def test_a_refused_proposal_amid_long_races_does_not_hide_them() -> None:
    """Four lanes run races of a minute, and at second 59 the rails refuse a proposal."""
    campaign: Any = SimpleNamespace(evidence=SimpleNamespace(iterations=5))
    progress = Progress(campaign, Goal(hours=1.0))
    assert "an hour" not in progress.line()
    for number, (at, wall_s) in enumerate([("00:59", 1.0), *[("01:00", 60.0)] * 4], start=1):
        row = iteration_row(number, config(lr=1e-3 * number), ())
        changes = {"at": f"2026-01-01T00:{at}.000+00:00", "wall_s": wall_s, "lanes": 4}
        progress.ended(row.model_copy(update=changes))
    assert "· 300 an hour" in progress.line(), "5 in a minute"
