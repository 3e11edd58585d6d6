"""A published sweep from its file, and what configs need by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.cli import app
from autoresearch.errors import EnvelopeError
from tests.support.envelopes import GB10_VOCAB, gb10_base, gb10_envelope, gb10_points
from trainer.envelope import Envelope
from trainer.envelope.needs import flops_of, needs
from trainer.envelope.published import read_published
from trainer.envelope.rail import FittedMemory
from trainer.memory.estimate import DeviceLimit
from trainer.spec import make_config


def sweep(**changes: Any) -> dict[str, Any]:
    """The published file: its keys, and the figures of its 16 points."""
    rows = [
        {
            "batch_size": point.batch_size,
            "seq_len": point.seq_len,
            "precision": point.precision,
            "ok": True,
            "params_m": 354.6,
            "mean_step_ms": round(point.step_ms or 0, 2),
            "tokens_per_s": point.tokens_per_s,
            "peak_gpu_mem_gib": point.peak_mem_gib,
            "peak_gpu_reserved_gib": 6.5,
            "loss_first": 11.03,
            "wall_s": 7.1,
        }
        for point in gb10_points()
    ]
    model = {"vocab_size": 50257, "n_layer": 24, "n_head": 16, "d_model": 1024, "d_ff": 4096}
    return {
        "device": "NVIDIA GB10",
        "te_version": "2.14.0+71bbefbf",
        "model": model,
        "sweep_steps": 30,
        "warmup_steps_excluded_from_mean": 5,
        "results": rows,
    } | changes


def read(path: Path, content: object) -> Envelope:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_published(
        path,
        menu="spark-354m",
        menu_sha256="0" * 64,
        base=gb10_base(),
        backend="megatron",
        limit=DeviceLimit(gib=119, source="device"),
    )


def test_the_published_sweep_gives_the_published_lines(tmp_path: Path) -> None:
    """Least squares over its points: 2.1 GiB + 1.47 MiB a token in bf16, 2.7 + 1.35 in fp8. (Its
    own rule of thumb says 5 GiB and KiB.)"""
    found = read(tmp_path / "sweep.json", sweep())
    bf16, fp8 = found.fit_of("bf16"), found.fit_of("fp8")
    assert bf16 is not None
    assert fp8 is not None
    assert (bf16.fixed_gib, bf16.per_token_mib) == pytest.approx((2.12, 1.471), rel=5e-3)
    assert (fp8.fixed_gib, fp8.per_token_mib) == pytest.approx((2.70, 1.354), rel=5e-3)
    assert bf16.max_error_gib < 0.21
    assert found.settings.base == gb10_base()
    assert found.settings.vocab_size == GB10_VOCAB
    assert found.notes == ()


def test_another_shape_than_the_menus_is_taken_as_it_was_measured_and_said(tmp_path: Path) -> None:
    model = sweep()["model"] | {"d_model": 768, "n_head": 12}
    found = read(tmp_path / "sweep.json", sweep(model=model))
    assert found.settings.base.d_model == 768
    assert "another shape: n_head 12 (the menu's baseline has 16), d_model 768" in found.notes[0]


def test_a_failed_point_has_no_speed_and_no_part_in_the_line(tmp_path: Path) -> None:
    lost = {"batch_size": 32, "seq_len": 2048, "precision": "bf16", "ok": False, "error": "OOM"}
    found = read(tmp_path / "sweep.json", sweep(results=[*sweep()["results"], lost]))
    assert found.points[-1].status == "crash"
    assert found.points[-1].message == "OOM"
    line = found.fit_of("bf16")
    assert line is not None
    assert len(line.residuals) == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is no published sweep"),
        ("[]", "is no published sweep"),
        (sweep(results=[]), "is no published sweep"),
        (sweep(model={"vocab_size": 50257}), "is no published sweep"),
        (sweep(model=sweep()["model"] | {"n_head": 7}), "not a multiple of n_head 7"),
        (sweep(sweep_steps=5), "5 of 5 steps are warm-up"),
        (sweep(results=[sweep()["results"][0] | {"precision": "int3"}]), "cannot be taken in"),
        (sweep(results=[sweep()["results"][0] | {"mean_step_ms": None}]), "has its numbers"),
        (
            sweep(results=[sweep()["results"][0] | {"tokens_per_s": 22088.0}]),
            "contradicts itself at bf16 b2 × 1024: 185.4",
        ),
    ],
)
def test_what_is_none_or_contradicts_itself_is_one_sentence(
    tmp_path: Path, content: object, said: str
) -> None:
    with pytest.raises(EnvelopeError) as refused:
        read(tmp_path / "sweep.json", content)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(EnvelopeError, match="cannot be read"):
        read_published(
            tmp_path / "nowhere.json",
            menu="m",
            menu_sha256="0",
            base=gb10_base(),
            backend="megatron",
            limit=DeviceLimit(gib=119, source="device"),
        )


def test_a_measured_point_needs_what_was_measured() -> None:
    envelope = gb10_envelope()
    memory = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    for point in gb10_points():
        config = gb10_base().model_copy(update=point.cell._asdict())
        (need,) = needs([config], memory, envelope, GB10_VOCAB)
        assert need.params == 354_551_808 + (point.seq_len - 1024) * 1024
        assert need.peak_gib == pytest.approx(point.peak_mem_gib, abs=0.21)
        assert need.tokens_per_s == pytest.approx(point.tokens_per_s, rel=0.05)
        assert need.speed_error is not None
        assert need.speed_error < 0.05
        assert need.fits


def test_a_vocabulary_counts_among_the_parameters_and_the_time() -> None:
    """The published count is of GPT-2's 50,257; with 1,024 ids the same shape has 50 M fewer."""
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


def test_the_commands(tmp_path: Path) -> None:
    """Taken in, then asked; the rail of this machine is left alone."""
    (tmp_path / "sweep.json").write_text(json.dumps(sweep()))
    out, data = tmp_path / "out", tmp_path / "data"
    common = ["envelope", "--menu", "spark-354m", "--backend", "megatron", "--out", str(out)]

    def run(*more: str) -> dict[str, Any]:
        environment = {"AUTORESEARCH_DATA_DIR": str(data)}
        done = CliRunner().invoke(app, [*common, *more, "--json"], env=environment)
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    taken = run("--import", str(tmp_path / "sweep.json"))
    assert set(taken["files"]) == {"envelope", "csv", "chart", "picture"}
    assert not data.exists()
    asked = ("--predict", "--device", "cuda", "--batch", "16", "--seq", "1024")
    (need,) = run(*asked, "--precision", "fp8")["needs"]
    assert need["peak_gib"] == pytest.approx(24.33, abs=0.2)
    assert need["step_ms"] == pytest.approx(1148.5, rel=0.05)
    assert need["params"] == 354_551_808
    (wider,) = run(*asked, "--precision", "fp8", "--set", "d_model=1536")["needs"]
    # Published of that shape: 607.4 M parameters, 1,720 ms, 29.4 GiB.
    assert wider["params"] == pytest.approx(607.4e6, rel=1e-3)
    assert wider["step_ms"] == pytest.approx(1720, rel=0.1)
    assert wider["peak_gib"] == pytest.approx(29.4, rel=0.1)


def test_nonsense_is_refused_by_name(tmp_path: Path) -> None:
    def said(*more: str) -> str:
        done = CliRunner().invoke(app, ["envelope", "--out", str(tmp_path), *more])
        assert done.exit_code != 0
        return str(done.exception) + done.output

    assert "names no field of a config" in said("--predict", "--set", "width=3")
    assert "names no field of a config" in said("--predict", "--set", "d_model")
    assert "d_model 101 is not a multiple" in said("--predict", "--set", "d_model=101")
    assert "three questions; ask one" in said("--predict", "--dry")


def test_predictions_without_a_measurement_are_the_rails_arithmetic(tmp_path: Path) -> None:
    arguments = ["envelope", "--out", str(tmp_path), "--predict", "--batch", "8", "--json"]
    environment = {"AUTORESEARCH_DATA_DIR": str(tmp_path)}
    done = CliRunner().invoke(app, arguments, env=environment)
    answer = json.loads(done.stdout)
    assert answer["by"].startswith("computed: no envelope")
    for need in answer["needs"]:
        config = make_config(need["config"])
        assert need["tokens_per_s"] is None
        assert need["params"] > 12 * config.n_layer * config.d_model**2 / 2
