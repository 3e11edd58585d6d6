"""The page and the files share one order of figures, and draw each figure only when needed."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.support.reports import findings, simulated, stress_rows
from trainer.spec import CurvePoint
from trajectory.report.figures.figure import SECTIONS
from trajectory.report.figures.registry import figures_of
from trajectory.report.report import write_report


def curve(_: str) -> list[CurvePoint]:
    return [
        CurvePoint(step=i, tokens=i, loss=6 - i / 20, lr=1e-3, grad_norm=1, elapsed_s=i)
        for i in range(1, 21)
    ]


def test_the_page_and_the_files_follow_the_registry(tmp_path: Path) -> None:
    found = findings(tmp_path, stress_rows(simulated(60)), curve)
    names = [figure.name for figure in figures_of(found)]
    assert len(names) == 7
    report = write_report(found, tmp_path / "report")
    page = report.page.read_text("utf-8")
    assert re.findall('<figure id="(.*?)">', page) == names
    for suffix in (".png", ".svg"):
        assert [path.stem for path in report.figures if path.suffix == suffix] == names
    for path in report.figures:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    left = {path.name for path in (tmp_path / "report").rglob("*") if path.is_file()}
    assert left == {"report.html", *(path.name for path in report.figures)}
    sections = re.findall('<section id="(.*?)">', page)
    assert sections == [section.id for section in SECTIONS]
    assert re.findall('<a href="#([a-z]+)">', page)[: len(sections)] == sections
