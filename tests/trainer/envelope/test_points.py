"""Test which points an envelope measures, and what they need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.cli import app
from autoresearch.errors import EnvelopeError
from tests.support.envelopes import (
    GB10_VOCAB,
    failed,
    gb10_base,
    gb10_envelope,
    gb10_points,
    point,
    settings,
)
from trainer.envelope import (
    ENVELOPE_FILE,
    Cell,
    PointsFile,
)
from trainer.envelope.prediction import flops_of, needs
from trainer.envelope.rail import FittedMemory
from trainer.spec import make_config


def test_points_are_there_again_after_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "new" / "points.jsonl"
    with PointsFile(path, settings()) as points:
        points.append(point(batch_size=2))
        points.append(failed(batch_size=4))
    with PointsFile(path, settings()) as points:
        assert points.points == (point(batch_size=2), failed(batch_size=4))
        assert points.find(Cell("fp32", 16, 2)) == point(batch_size=2)
        assert points.find(Cell("fp32", 16, 8)) is None


def test_only_a_settled_point_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    with PointsFile(path, settings()) as points:
        for batch_size, status in ((2, "oom"), (4, "crash"), (8, "timeout"), (16, "refused")):
            points.append(failed(batch_size=batch_size, status=status))
        found = [points.find(Cell("fp32", 16, batch)) is not None for batch in (2, 4, 8, 16)]
        assert found == [True, False, False, False]
        points.append(point(batch_size=4))
    with PointsFile(path, settings()) as points:
        assert points.find(Cell("fp32", 16, 4)) == point(batch_size=4), "the later one counts"
        assert len(points.points) == 4


@pytest.mark.parametrize("kept_bytes", [1, 40])
def test_a_torn_last_line_is_removed_and_nothing_else(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "points.jsonl"
    with PointsFile(path, settings()) as points:
        points.append(point(batch_size=2))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:kept_bytes])
    with PointsFile(path, settings()) as points:
        assert points.points == (point(batch_size=2),)
        points.append(point(batch_size=4))
    with PointsFile(path, settings()) as points:
        assert points.points == (point(batch_size=2), point(batch_size=4))


def test_damage_before_the_last_line_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    with PointsFile(path, settings()) as points:
        points.append(point(batch_size=2))
        points.append(point(batch_size=4))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], lines[2], ""]))
    with pytest.raises(EnvelopeError, match="line 2"):
        PointsFile(path, settings())


def test_other_settings_are_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    PointsFile(path, settings()).close()
    base = settings().base.model_copy(update={"n_layer": 2})
    with pytest.raises(EnvelopeError, match="n_layer"):
        PointsFile(path, settings(base=base, steps=5))
    PointsFile(path, settings()).close()


def test_points_of_another_device_are_not_mixed_in(tmp_path: Path) -> None:
    with PointsFile(tmp_path / "points.jsonl", settings()) as points:
        points.append(point(batch_size=2, device_name="NVIDIA GB10"))
        points.append(failed(batch_size=4))
        with pytest.raises(EnvelopeError):
            points.append(point(batch_size=8, device_name="H200"))


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with (
        PointsFile(tmp_path / "points.jsonl", settings()),
        pytest.raises(EnvelopeError),
    ):
        PointsFile(tmp_path / "points.jsonl", settings())


def test_failure_is_never_a_number() -> None:
    with pytest.raises(ValueError, match="has no speed"):
        failed(tokens_per_s=1.0)
    with pytest.raises(ValueError, match="has its numbers"):
        point(step_ms=None)


def test_settings_leave_a_step_to_count() -> None:
    with pytest.raises(ValueError, match="4 of 4 steps are warm-up"):
        settings(warmup=4)


def test_a_measured_point_needs_what_was_measured() -> None:
    envelope = gb10_envelope()
    memory = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    for one in gb10_points():
        config = gb10_base().model_copy(update=one.cell._asdict())
        (need,) = needs([config], memory, envelope, GB10_VOCAB)
        assert need.params == 354_551_808 + (one.seq_len - 1024) * 1024
        assert need.peak_gib == pytest.approx(one.peak_mem_gib, abs=0.21)
        assert need.tokens_per_s == pytest.approx(one.tokens_per_s, rel=0.05)
        assert need.speed_error is not None
        assert need.speed_error < 0.05
        assert need.fits


def test_a_vocabulary_counts_among_the_parameters_and_the_time() -> None:
    """The published count is for GPT-2's 50,257 ids; with 1,024 ids the same shape has 50 M
    fewer."""
    envelope = gb10_envelope()
    memory = FittedMemory(envelope, vocab_size=1024, limit_gib=119)
    (small,) = needs([gb10_base()], memory, envelope, 1024, flops_of)
    assert small.params == 354_551_808 - (50257 - 1024) * 1024
    (large,) = needs([gb10_base()], memory, envelope, GB10_VOCAB, flops_of)
    assert (small.tokens_per_s or 0) > 1.1 * (large.tokens_per_s or 0)


def test_without_an_envelope_no_time_is_said() -> None:
    envelope = gb10_envelope()
    memory = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=20)
    (need,) = needs([gb10_base()], memory, None, GB10_VOCAB)
    assert need.tokens_per_s is None
    assert need.step_ms is None
    assert not need.fits


@pytest.mark.slow
def test_a_saved_envelope_answers_what_other_shapes_need(tmp_path: Path) -> None:
    gb10_envelope().save(tmp_path / ENVELOPE_FILE)
    common = ["envelope", "--menu", "spark-354m", "--backend", "megatron", "--out", str(tmp_path)]

    def run(*more: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*common, *more, "--json"])
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    asked = ("--predict", "--device", "cuda", "--batch", "16", "--seq", "1024")
    (need,) = run(*asked, "--precision", "fp8")["needs"]
    assert need["peak_gib"] == pytest.approx(24.33, abs=0.2)
    assert need["step_ms"] == pytest.approx(1148.5, rel=0.05)
    assert need["params"] == 354_551_808
    (wider,) = run(*asked, "--precision", "fp8", "--set", "d_model=1536")["needs"]
    # Published for that shape: 607.4 M parameters, 1,720 ms, 29.4 GiB.
    assert wider["params"] == pytest.approx(607.4e6, rel=1e-3)
    assert wider["step_ms"] == pytest.approx(1720, rel=0.1)
    assert wider["peak_gib"] == pytest.approx(29.4, rel=0.1)


def test_nonsense_is_refused_by_name(tmp_path: Path) -> None:
    def said(*more: str) -> str:
        done = CliRunner().invoke(app, ["envelope", "--out", str(tmp_path), *more])
        assert done.exit_code != 0
        return str(done.exception) + done.output

    said("--predict", "--set", "width=3")
    said("--predict", "--set", "d_model")
    assert "d_model 101 is not a multiple" in said("--predict", "--set", "d_model=101")
    said("--predict", "--dry")


def test_predictions_without_a_measurement_are_the_rails_arithmetic(tmp_path: Path) -> None:
    arguments = ["envelope", "--out", str(tmp_path), "--predict", "--batch", "8", "--json"]
    environment = {"AUTORESEARCH_DATA_DIR": str(tmp_path)}
    done = CliRunner().invoke(app, arguments, env=environment)
    answer = json.loads(done.stdout)
    for need in answer["needs"]:
        config = make_config(need["config"])
        assert need["tokens_per_s"] is None
        assert need["params"] > 12 * config.n_layer * config.d_model**2 / 2
