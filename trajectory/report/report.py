"""A report on disk: the page, and each figure as SVG and PNG."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trajectory.report.album import pictures
from trajectory.report.figures import svg
from trajectory.report.figures.canvas import style
from trajectory.report.findings import Findings
from trajectory.report.page import render

PAGE = "report.html"
FIGURES = "figures"
PNG_DPI = 160


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    page: Path
    figures: tuple[Path, ...]
    """Two files each: SVG and PNG."""


def write_report(findings: Findings, out: Path) -> Report:
    """Write a campaign's report into a folder, made where it is missing.

    Each file appears whole or not at all, the page last.

    :raises OSError: where the folder cannot be written.
    """
    with style():
        album = [(svg.draw(picture), svg.png(picture, PNG_DPI)) for picture in pictures(findings)]
    page = render(findings, [drawing for drawing, _ in album], datetime.now(UTC))
    (out / FIGURES).mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for drawing, image in album:
        files += [out / FIGURES / f"{drawing.name}.{kind}" for kind in ("svg", "png")]
        _replace(files[-2], drawing.standalone.encode())
        _replace(files[-1], image)
    _replace(out / PAGE, page.encode())
    return Report(out / PAGE, tuple(files))


def _replace(path: Path, data: bytes) -> None:
    """Write beside it and move over it."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
