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
    """Paths of the files of a report."""

    page: Path
    figures: tuple[Path, ...]
    """Two files for each figure: SVG and PNG."""


def write_report(findings: Findings, out: Path) -> Report:
    """Write a campaign's report into a folder, which is created if it is missing.

    Either all files appear or none. Each is first written to a temporary file beside its
    destination. Once all are written, they are moved into place, the page last.

    :raises OSError: if the folder cannot be written.
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
    """Write temporary files beside the destinations, then move them into place in the given
    order."""
    with ExitStack() as places:
        for path, data in reversed(files.items()):  # an ExitStack exits in reverse order
            file = places.enter_context(replacing(path))
            file.write(data)
            file.flush()
