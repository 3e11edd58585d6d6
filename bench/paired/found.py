"""What a campaign had found after so long, as its journal says."""

from __future__ import annotations

from pathlib import Path

from autoresearch.layout import JOURNAL_FILE
from trainer.spec import AnyConfig
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.rows import BaselineRow, IterationRow, Row


def seconds_of(campaign: Path) -> float:
    """Of the whole search: proposing, training and judging. 0 where it has not begun."""
    journal = campaign / JOURNAL_FILE
    return sum(_took_s(row) for row in read_rows(journal)) if journal.exists() else 0.0


def iterations_of(campaign: Path) -> int:
    """That have ended. 0 where it has not begun."""
    journal = campaign / JOURNAL_FILE
    if not journal.exists():
        return 0
    return sum(isinstance(row, IterationRow) for row in read_rows(journal))


def incumbent_at(campaign: Path, seconds: float) -> tuple[AnyConfig, int]:
    """The config that the loop went on from after so many seconds of search, and how many
    iterations had ended by then; the baseline before any was kept."""
    evidence, spent_s = Evidence(), 0.0
    for row in read_rows(campaign / JOURNAL_FILE):
        spent_s += _took_s(row)
        if spent_s > seconds * (1 + 1e-9) and isinstance(row, IterationRow):
            break
        evidence.add(row)
    assert evidence.incumbent_hash is not None, f"{campaign} has no baseline"
    return evidence.configs[evidence.incumbent_hash].config, evidence.iterations


def _took_s(row: Row) -> float:
    if isinstance(row, BaselineRow):
        return row.trial.wall_s
    return row.wall_s if isinstance(row, IterationRow) else 0.0
