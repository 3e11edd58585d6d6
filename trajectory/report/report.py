"""A report on disk: the page, and each figure as SVG and PNG."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autoresearch.files import replacing
from autoresearch.layout import FIGURES_DIR, REPORT_PAGE
from trajectory.report.drawing import svg
from trajectory.report.drawing.canvas import style
from trajectory.report.figures.registry import figures_of
from trajectory.report.findings import Findings
from trajectory.report.page import render

PNG_DPI = 160


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    page: Path
    figures: tuple[Path, ...]
    """Two files each: SVG and PNG."""


def write_report(findings: Findings, out: Path) -> Report:
    """Write a campaign's report into a folder, made where it is missing.

    All files appear, or none: each is written beside its place, and they are moved there, the page
    last, once there was room for all.

    :raises OSError: where the folder cannot be written.
    """
    figures = figures_of(findings)
    with style():
        shown = [figure for figure in figures if figure.shows]
        pictures = (figure.draw() for figure in shown)
        drawn = [(svg.draw(picture), svg.png(picture, PNG_DPI)) for picture in pictures]
        narrow = [svg.draw(picture) for figure in shown if (picture := figure.draw_narrow())]
    drawings = [*(drawing for drawing, _ in drawn), *narrow]
    page = render(findings, figures, drawings, datetime.now(UTC))
    (out / FIGURES_DIR).mkdir(parents=True, exist_ok=True)
    files: dict[Path, bytes] = {}
    for drawing, image in drawn:
        files[out / FIGURES_DIR / f"{drawing.name}.svg"] = drawing.standalone.encode()
        files[out / FIGURES_DIR / f"{drawing.name}.png"] = image
    _replace_all({**files, out / REPORT_PAGE: page.encode()})
    return Report(out / REPORT_PAGE, tuple(files))


def _replace_all(files: dict[Path, bytes]) -> None:
    """Write all of them beside their places, then move them there, in their order."""
    with ExitStack() as places:
        for path, data in reversed(files.items()):  # the last that is entered is left first
            file = places.enter_context(replacing(path))
            file.write(data)
            file.flush()
