"""A separate process draws the figures and ends with the album."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from trajectory.live.album import Album
from trajectory.report.figures.registry import FIGURES

DRAWS = """
import pathlib, sys
figures = pathlib.Path(sys.argv[-1]) / "figures"
figures.mkdir()
(figures / "progress.svg").write_text("<svg/>")
"""
NEVER_ENDS = """
import pathlib, sys, time
pathlib.Path(sys.argv[-3], "begun").touch()
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_what_was_drawn_is_shown_until_it_is_closed(tmp_path: Path, temporary: Path) -> None:
    album = Album(tmp_path, [sys.executable, "-c", DRAWS])
    assert album.state(7, 3).drawing
    wait_until(lambda: not album.state(7, 3).drawing)
    assert (album.state(7, 3).names, album.state(7, 3).error) == (("progress",), None)
    assert album.file("../progress") is None
    assert (album.file("progress") or Path()).read_text("utf-8") == "<svg/>"
    album.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_figures_are_shown_in_the_order_of_the_report(tmp_path: Path, temporary: Path) -> None:
    names = [kind.name for kind in FIGURES]
    draws = DRAWS + f"for name in {names[::-1]}: (figures / f'{{name}}.svg').touch()\n"
    album = Album(tmp_path, [sys.executable, "-c", draws])
    wait_until(lambda: album.state(7, 3).names == tuple(names))
    album.close()


def test_closing_ends_what_is_being_drawn(tmp_path: Path, temporary: Path) -> None:
    album = Album(tmp_path, [sys.executable, "-c", NEVER_ENDS])
    album.state(7, 3)
    wait_until((tmp_path / "begun").exists)
    album.close()
    assert list(temporary.iterdir()) == []
    assert not album.state(8, 4).drawing


@pytest.mark.slow
def test_a_drawing_that_failed_is_tried_again_though_nothing_landed(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajectory.live.album.RETRY_S", 0.2)
    monkeypatch.setattr("trajectory.live.album.REDRAW_S", 0.2)
    once = f"import pathlib\nif pathlib.Path('{tmp_path}/tried').exists():\n"
    once += "".join(f"    {line}\n" for line in DRAWS.splitlines())
    once += f"else: pathlib.Path('{tmp_path}/tried').touch(); raise SystemExit('error: no room')\n"
    album = Album(tmp_path, [sys.executable, "-c", once])
    wait_until(lambda: album.state(7, 3).error == "error: no room")
    wait_until(lambda: album.state(7, 3).names == ("progress",))
    assert album.state(7, 3).error is None
    album.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_rows_that_are_no_iterations_have_it_drawn_again(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajectory.live.album.REDRAW_S", 0.0)
    album = Album(tmp_path, [sys.executable, "-c", DRAWS])
    wait_until(lambda: album.state(7, 3).rows == 7)
    wait_until(lambda: album.state(8, 3).rows == 8)
    album.close()
