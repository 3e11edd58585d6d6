"""The envelope's chart shows every point, line and failure."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from autoresearch.errors import MachineryError
from tests.support.envelopes import failed, gb10_envelope, settings
from trainer.envelope import Envelope
from trainer.envelope.grid import draw, write_chart
from trainer.memory.estimate import DeviceLimit

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
