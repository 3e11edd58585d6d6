"""Test which points an envelope measures, and what they need."""

from pathlib import Path

import pytest

from autoresearch.errors import EnvelopeError
from tests.support.envelopes import failed, gb10_points, point, settings
from trainer.envelope.points import Cell, Grid, PointsFile


@pytest.mark.parametrize("torn", [b"", b"{", b'{"batch_size": 8, "seq_len": 16, "precisio'])
def test_points_are_there_again_after_an_interruption(tmp_path: Path, torn: bytes) -> None:
    """A torn last line is removed, and nothing else."""
    path = tmp_path / "new" / "points.jsonl"
    points = PointsFile(path, settings())
    points.append(point(batch_size=2))
    points.append(failed(batch_size=4))
    path.write_bytes(path.read_bytes() + torn)
    points = PointsFile(path, settings())
    points.append(point(batch_size=8))
    points = PointsFile(path, settings())
    assert points.points == (point(batch_size=2), failed(batch_size=4), point(batch_size=8))
    assert points.find(Cell("fp32", 16, 2)) == point(batch_size=2)
    assert points.find(Cell("fp32", 16, 16)) is None


def test_only_a_settled_point_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    points = PointsFile(path, settings())
    for batch_size, status in ((2, "oom"), (4, "crash"), (8, "timeout"), (16, "refused")):
        points.append(failed(batch_size=batch_size, status=status))
    found = [points.find(Cell("fp32", 16, batch)) is not None for batch in (2, 4, 8, 16)]
    assert found == [True, False, False, False]
    points.append(point(batch_size=4))
    points = PointsFile(path, settings())
    assert points.find(Cell("fp32", 16, 4)) == point(batch_size=4), "the later one counts"
    assert len(points.points) == 4


def test_damage_before_the_last_line_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    points = PointsFile(path, settings())
    points.append(point(batch_size=2))
    points.append(point(batch_size=4))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], lines[2], ""]))
    with pytest.raises(EnvelopeError, match="line 2"):
        PointsFile(path, settings())


def test_other_settings_are_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    PointsFile(path, settings())
    base = settings().base.model_copy(update={"n_layer": 2})
    with pytest.raises(EnvelopeError, match="n_layer"):
        PointsFile(path, settings(base=base, steps=5))
    PointsFile(path, settings())


def test_points_of_another_device_are_not_mixed_in(tmp_path: Path) -> None:
    points = PointsFile(tmp_path / "points.jsonl", settings())
    points.append(point(batch_size=2, device_name="NVIDIA GB10"))
    points.append(failed(batch_size=4))
    with pytest.raises(EnvelopeError):
        points.append(point(batch_size=8, device_name="H200"))


def test_failure_is_never_a_number_and_settings_leave_a_step_to_count() -> None:
    with pytest.raises(ValueError, match="has no speed"):
        failed(tokens_per_s=1.0)
    with pytest.raises(ValueError, match="has its numbers"):
        point(step_ms=None)
    with pytest.raises(ValueError, match="4 of 4 steps are warm-up"):
        settings(warmup=4)


def test_the_memory_line_is_that_of_the_published_points() -> None:
    """The article says 5 GiB and 1.5 KiB a token; least squares say this."""
    grid = Grid.of(gb10_points())
    constant_gib, per_token_gib = grid.memory_line("bf16") or (0.0, 0.0)
    assert constant_gib == pytest.approx(2.12, abs=0.01)
    assert per_token_gib * 1024 == pytest.approx(1.471, abs=0.001), "MiB"
    constant_gib, per_token_gib = grid.memory_line("fp8") or (0.0, 0.0)
    assert (constant_gib, per_token_gib * 1024) == pytest.approx((2.70, 1.354), abs=0.005)
    assert Grid.of(gb10_points()[:1]).memory_line("bf16") is None


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
