"""Test the grid of an envelope's points."""

import pytest

from tests.support.envelopes import failed, gb10_points, point
from trainer.envelope.points import Grid


def test_the_fp8_gain_is_the_published_one() -> None:
    grid = Grid.of(gb10_points())
    assert grid.precisions == ["bf16", "fp8"]
    assert grid.gain_pct("fp8", "bf16", 1024, 2) == pytest.approx(100 * (11944 / 11044 - 1))
    assert grid.gain_pct("fp8", "bf16", 1024, 32) is None
    assert Grid.of([point(), failed(precision="bf16")]).gain_pct("bf16", "fp32", 16, 2) is None


def test_the_largest_batch_is_one_that_was_trained() -> None:
    points = [
        *(point(batch_size=batch) for batch in (2, 8, 4)),
        *(failed(batch_size=batch, status=status) for batch, status in ((16, "oom"), (1, "crash"))),
        failed(precision="bf16"),
    ]
    assert Grid.of(points).largest_batches() == [("fp32", 16, 8), ("bf16", 16, None)]
