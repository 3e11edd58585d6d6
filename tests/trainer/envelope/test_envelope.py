"""Test the measured envelope: its points, its counted step and its chart."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import EnvelopeError, MachineryError
from tests.support.envelopes import (
    GB10_PEAK_GIB,
    failed,
    gb10_envelope,
    gb10_points,
    point,
    settings,
)
from trainer.envelope import (
    DeviceUse,
    Envelope,
    EnvelopePoint,
    fit,
)
from trainer.envelope.grid import Grid, draw, write_chart
from trainer.memory.estimate import DeviceLimit
from trainer.telemetry.summary import MeanAndPeak, Tally


@pytest.mark.parametrize(
    ("precision", "fixed_gib", "per_token_mib"), [("bf16", 2.1, 1.47), ("fp8", 2.7, 1.35)]
)
def test_the_published_table_comes_back_within_a_third_of_a_gib(
    precision: str, fixed_gib: float, per_token_mib: float
) -> None:
    line = fit(gb10_points(), precision)
    assert line.fixed_gib == pytest.approx(fixed_gib, abs=0.05)
    assert line.per_token_mib == pytest.approx(per_token_mib, abs=0.01)
    assert len(line.residuals) == 8
    assert line.max_error_gib == max(abs(one.error_gib) for one in line.residuals) < 0.3
    for one in line.residuals:
        fitted = line.predict_gib(one.batch_size * one.seq_len)
        assert one.measured_gib - fitted == pytest.approx(one.error_gib)
    for seq_len, peaks_gib in GB10_PEAK_GIB[precision].items():
        for batch_size, peak_gib in zip((2, 4, 8, 16), peaks_gib, strict=True):
            assert line.predict_gib(batch_size * seq_len) == pytest.approx(peak_gib, abs=0.3)


@given(
    fixed_gib=st.floats(0, 50),
    per_token_mib=st.floats(0.01, 10),
    batches=st.sets(st.integers(1, 64), min_size=2, max_size=6),
)
def test_points_on_a_line_give_the_line(
    fixed_gib: float, per_token_mib: float, batches: set[int]
) -> None:
    points = [
        point(batch_size=b, seq_len=512, peak_mem_gib=fixed_gib + per_token_mib * b * 512 / 1024)
        for b in sorted(batches)
    ]
    line = fit(points, "fp32")
    assert line.fixed_gib == pytest.approx(fixed_gib, abs=1e-6)
    assert line.per_token_mib == pytest.approx(per_token_mib, rel=1e-6)
    assert line.max_error_gib < 1e-6


def test_a_line_that_would_start_below_nothing_starts_at_nothing() -> None:
    line = fit([point(batch_size=b, peak_mem_gib=b * b) for b in (1, 2, 3)], "fp32")
    assert line.fixed_gib == 0
    assert line.predict_gib(32) > 0


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([], "0 number of tokens"),
        ([point()], "1 number of tokens"),
        ([point(batch_size=2, seq_len=16), point(batch_size=4, seq_len=8)], "1 number of tokens"),
        ([point(), failed(batch_size=4)], "1 number of tokens"),
        ([point(batch_size=2, peak_mem_gib=2.0), point(batch_size=4, peak_mem_gib=1.0)], "grow"),
    ],
)
def test_too_little_for_a_line_is_refused(points: list[EnvelopePoint], why: str) -> None:
    with pytest.raises(EnvelopeError, match=why):
        fit(points, "fp32")


@given(limit_gib=st.floats(0, 200))
def test_the_most_tokens_fit_and_one_more_does_not(limit_gib: float) -> None:
    line = fit(gb10_points(), "bf16")
    most = line.most_tokens(limit_gib)
    assert most == 0 or line.predict_gib(most) <= limit_gib + 1e-9
    assert line.predict_gib(most + 1) > limit_gib - 1e-9


def test_an_envelope_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "made" / "envelope.json"
    gb10_envelope().save(path)
    assert Envelope.load(path) == gb10_envelope()
    assert [p.name for p in path.parent.iterdir()] == ["envelope.json"]


@pytest.mark.parametrize("text", [None, "", "{}", '{"kind": "other"}'])
def test_a_file_that_is_no_envelope_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "envelope.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(EnvelopeError):
        Envelope.load(path)


def test_what_cannot_be_fitted_and_what_contradicts_the_fit_is_noted() -> None:
    limit = DeviceLimit(gib=10, source="device")
    points = [
        point(batch_size=2, peak_mem_gib=1.0),
        point(batch_size=4, peak_mem_gib=2.0),
        failed(batch_size=8),
        failed(batch_size=64),
        failed(precision="bf16"),
    ]
    found = Envelope.of(settings(), limit, points)
    assert [line.precision for line in found.fits] == ["fp32"]
    unfitted, contradiction = found.notes
    assert "bf16 cannot be fitted" in unfitted
    assert "fp32 b8 × 16 ran out of memory where the fit says 4.00 GiB" in contradiction


def test_the_fp8_gain_is_the_published_one() -> None:
    grid = Grid.of(gb10_points())
    assert grid.precisions == ["bf16", "fp8"]
    assert grid.gain_pct("fp8", "bf16", 1024, 2) == pytest.approx(100 * (11944 / 11044 - 1))
    assert grid.gain_pct("fp8", "bf16", 1024, 32) is None
    assert Grid.of([point(), failed(precision="bf16")]).gain_pct("bf16", "fp32", 16, 2) is None


def test_a_telemetrys_summary_is_taken_as_far_as_it_goes() -> None:
    summary = Tally().summary(usd_per_kwh=0.0)
    power = MeanAndPeak(mean=55.8, peak=77.1)
    use = DeviceUse.of(summary.model_copy(update={"power_w": power}))
    assert (use.power_mean_w, use.power_peak_w, use.gpu_util_mean_pct) == (55.8, 77.1, None)


SVG = "{http://www.w3.org/2000/svg}"


def test_the_chart_shows_every_point_and_line() -> None:
    envelope = gb10_envelope()
    out_of_memory = failed(seq_len=4096, batch_size=16, precision="bf16")
    figure = draw(envelope.model_copy(update={"points": (*envelope.points, out_of_memory)}))
    throughput, memory = figure.axes
    for axes, of_a_point in (
        (throughput, lambda point: point.tokens_per_s),
        (memory, lambda point: point.peak_mem_gib),
    ):
        drawn = {
            (float(x), float(y))
            for line in axes.lines
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        }
        measured = {(p.tokens_per_step, of_a_point(p)) for p in envelope.points}
        assert measured <= drawn
        assert (65536.0, 0.0) in drawn, "the failure, at the lower edge"
        assert [text.get_text() for text in axes.texts] == ["bf16 b16 × 4096: oom"]
    said = [text.get_text() for text in memory.get_legend().get_texts()]
    assert "fp8: 2.70 GiB + 1.354 MiB a token" in said
    assert not any(text.startswith("limit") for text in said), "119 GiB is far above 49"


def test_a_limit_that_is_near_is_drawn() -> None:
    envelope = gb10_envelope()
    near = envelope.model_copy(update={"limit": DeviceLimit(gib=64, source="device")})
    said = [text.get_text() for text in draw(near).axes[1].get_legend().get_texts()]
    assert "limit: 64.0 GiB (device)" in said


def test_the_chart_is_written_for_the_screen_and_for_print(tmp_path: Path) -> None:
    svg, png = write_chart(gb10_envelope(), tmp_path)
    root = ElementTree.fromstring(svg.read_text("utf-8"))
    said = {"".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")}
    assert "spark-354m, megatron on NVIDIA GB10" in said
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    write_chart(gb10_envelope(), tmp_path)
    assert svg.read_bytes() == first, "no date, no random ids"


def test_a_chart_of_failures_alone_can_be_drawn(tmp_path: Path) -> None:
    limit = DeviceLimit(gib=10, source="device")
    envelope = Envelope.of(settings(menu="<toy> $x$"), limit, [failed(message="<b>")])
    svg, _ = write_chart(envelope, tmp_path)
    root = ElementTree.fromstring(svg.read_text("utf-8"))
    said = {"".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")}
    assert "<toy> $x$, torch on cpu" in said


def test_a_chart_that_cannot_be_written_is_the_machinerys_fault(tmp_path: Path) -> None:
    with pytest.raises(MachineryError):
        write_chart(gb10_envelope(), tmp_path / "nowhere")
