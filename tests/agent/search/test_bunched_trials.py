"""Test several trials that end between two checks by the loop.

Their races are decided one after another, each against the reference that the previous one left.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.search.stopping import Goal
from tests.support import nights
from tests.support.simulated.executor import SimulatedExecutor
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.rows import IterationRow


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
