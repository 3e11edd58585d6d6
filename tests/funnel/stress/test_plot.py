"""The side-by-side plot is complete in both formats and reproducible from the same curves."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from autoresearch.errors import MachineryError
from funnel.stress.plot import Panel, Run, save_plot
from tests.support.curves import noisy, points, power_law


def panel(title: str, *, step: int | None = None) -> Panel:
    loss = noisy(power_law(), 200, 0.1, seed=len(title))
    if step is not None:
        loss[step:] += 50.0
    run = Run(points(loss), "survives" if step is None else "diverges", step)
    return Panel(title, "3.1 bpb", (run, run))


def test_both_formats_and_every_word(tmp_path: Path) -> None:
    panels = [panel("candidate, rank 1"), panel("candidate [b], rank $2$", step=120)]
    png, svg = save_plot(panels, panel("baseline, rank 9"), tmp_path / "stress-200")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stress-200.png", "stress-200.svg"]
    with Image.open(png) as image:
        width, height = image.size
    assert width >= 1400 and height >= 400
    text = svg.read_text("utf-8")
    for words in ("rank $2$", "baseline, rank 9", "where it happened", "nats per token"):
        assert words in text


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MachineryError):
        save_plot([panel("candidate")], None, tmp_path / "missing" / "x")
    (tmp_path / "x.png").mkdir()
    with pytest.raises(MachineryError):
        save_plot([panel("candidate")], None, tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


def test_the_same_curves_give_the_same_picture_and_none_an_empty_panel(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_plot([panel("candidate")], None, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    empty = Panel("candidate", "failed", (Run([], "failed", None),))
    assert all(path.stat().st_size for path in save_plot([empty], None, tmp_path / "x"))
