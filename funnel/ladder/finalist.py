"""Find the recipe that a ladder is made of, and whose ladder a launch plan looks for."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.spec import Config, TrialOk, gpt
from trajectory.rows import FinalistsRow, Row, StressRow


def best_finalist(rows: Sequence[Row]) -> tuple[Config, int] | None:
    """Return the best finalist of the latest stress test that has any, and the steps of its runs'
    schedule."""
    latest = next((r for r in reversed(rows) if isinstance(r, FinalistsRow) and r.finalists), None)
    if latest is None:
        return None
    name = latest.finalists[0].config_hash
    for row in reversed(rows):
        if isinstance(row, StressRow) and (row.config_hash, row.steps) == (name, latest.steps):
            result = row.trial.result
            return gpt(row.config), result.steps if isinstance(result, TrialOk) else latest.steps
    return None
