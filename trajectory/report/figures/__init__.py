"""Figures of the report: the page's sections, in order, and what a figure consists of.

Each module has the values, picture and text of a figure, or of two on one subject. To add a figure,
add a :class:`Figure`, and list it in ``trajectory/report/report.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trajectory.report.canvas import Picture


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One section. It has a template with its id's name, or consists of its figures."""

    id: str
    """Its anchor in the page."""
    heading: str
    link: str
    """Its text in the list of sections."""
    always: bool = False
    """Whether the page has it even without any of its figures."""


SEARCH = ReportSection("search", "The search", "Search")
BEST = ReportSection("best", "The best configs", "Best", always=True)
KNOBS = ReportSection("knobs", "What the knobs do", "Knobs")
COVERED = ReportSection("covered", "Coverage", "Coverage")
WHO = ReportSection("who", "Proposers", "Proposers")
LEARNING = ReportSection("learning", "Learning curves", "Curves")
LONG = ReportSection("long", "Long runs", "Long runs")
SPENT = ReportSection("spent", "Time, energy and money", "Time")
ALL = ReportSection("all", "All iterations", "All iterations", always=True)

SECTIONS = (SEARCH, BEST, KNOBS, COVERED, WHO, LEARNING, LONG, SPENT, ALL)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its text, its values, and its drawing.

    A template ``templates/figures/NAME.html.j2``, if there is one, adds content below the caption,
    such as a table of the same values. It sees this object as ``figure``.
    """

    name: str
    """The name of its files, and its anchor in the page."""
    section: ReportSection
    """The section that shows it; within a section, figures follow the report's order."""
    caption: str
    """Explanation of how to read it, in plain text, naming only colors that both color schemes
    have."""
    draw: Callable[[], Picture] | None
    """Draws it, within :func:`trajectory.report.canvas.style`; None if there is nothing to draw
    yet."""
    values: Any = None
    """Values that its template shows."""
