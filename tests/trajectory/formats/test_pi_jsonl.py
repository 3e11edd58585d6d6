"""Reading the autoresearch.jsonl of pi-autoresearch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoresearch.errors import FormatError
from trajectory.formats.imported import read_imported
from trajectory.formats.importing import import_campaign
from trajectory.formats.standings import Standings

CONFIG = {"type": "config", "name": "x", "metricName": "best_val_bpb", "bestDirection": "lower"}


def run(number: int, metric: float, status: str, description: str) -> dict[str, object]:
    return {
        "run": number,
        "commit": "aaaaaa1",
        "metric": metric,
        "metrics": {"steps": 10 * number},
        "status": status,
        "description": description,
        "timestamp": 1774024187637,
        "segment": 0,
    }


def write(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "autoresearch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_its_runs_are_ranked_under_its_own_metric(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        CONFIG,
        run(1, 0, "crash", "failed"),
        run(2, 1.56, "keep", "baseline"),
        run(3, 1.54, "discard", "too large"),
        run(4, 1.50, "checks_failed", "wider"),
        CONFIG | {"metricName": "seconds"},
        run(5, 0.5, "keep", "faster"),
    )
    provenance = import_campaign(path, tmp_path / "campaign")
    assert (provenance.format, provenance.measure) == ("pi-jsonl", "best_val_bpb")
    assert [skipped.line for skipped in provenance.skipped] == [7]
    standings = Standings.of(read_imported(tmp_path / "campaign").runs)
    assert [one.entry.mean for one in standings.top(9)] == [1.50, 1.54, 1.56]
    assert standings.baseline is not None
    assert standings.baseline.mean == 1.56


def test_a_metric_that_is_better_when_higher_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIG | {"bestDirection": "higher"}, run(1, 0.9, "keep", "baseline"))
    with pytest.raises(FormatError):
        import_campaign(path, tmp_path / "campaign")
