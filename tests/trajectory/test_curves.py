"""The curves of a campaign's trials are read within bounds."""

import resource
from itertools import pairwise
from pathlib import Path

import pytest

from trainer.schema import CurvePoint
from trainer.schema.result import MAX_POINTS
from trajectory.curves import read_curve


@pytest.fixture
def curve(tmp_path: Path) -> Path:
    """Return where the curve of a campaign's first trial is."""
    trial = tmp_path / "trials" / "t000001"
    trial.mkdir(parents=True)
    return trial / "curve.jsonl"


def test_a_long_curve_is_thinned_and_takes_little_memory(tmp_path: Path, curve: Path) -> None:
    with curve.open("w") as file:
        for step in range(1, 60_001):
            point = CurvePoint(step=step, loss=5.5, elapsed_s=0.05)
            file.write(point.model_dump_json() + "\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    points = read_curve(tmp_path, "t000001")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB
    assert MAX_POINTS / 2 <= len(points) <= MAX_POINTS
    assert (points[0].step, points[-1].step) == (1, 60_000)
    strides = {after.step - before.step for before, after in pairwise(points[:-1])}
    assert len(strides) == 1, "the thinning is even"


def test_a_sparse_terabyte_is_not_read(tmp_path: Path, curve: Path) -> None:
    with curve.open("wb") as file:
        file.truncate(1 << 40)
    assert read_curve(tmp_path, "t000001") == []
