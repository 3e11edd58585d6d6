"""The page's sections, in order, and the base class of its figures."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from trajectory.report.canvas import Picture
from trajectory.report.findings import Findings


@dataclass(frozen=True, slots=True)
class Section:
    """One section. It has a template with its id's name, or consists of its figures."""

    id: str
    """Its anchor in the page."""
    heading: str
    link: str
    """Its text in the list of sections."""
    always: bool = False
    """Whether the page has it even without any of its figures."""


SEARCH = Section("search", "The search", "Search")
BEST = Section("best", "The best configs", "Best", always=True)
KNOBS = Section("knobs", "What the knobs do", "Knobs")
COVERED = Section("covered", "Coverage", "Coverage")
WHO = Section("who", "Proposers", "Proposers")
LEARNING = Section("learning", "Learning curves", "Curves")
LONG = Section("long", "Long runs", "Long runs")
SPENT = Section("spent", "Time, energy and money", "Time")
ALL = Section("all", "All iterations", "All iterations", always=True)

SECTIONS = (SEARCH, BEST, KNOBS, COVERED, WHO, LEARNING, LONG, SPENT, ALL)


class Figure(ABC):
    """One figure: the values it shows, its drawing, and its text.

    An instance holds plain values; Matplotlib is loaded when it is drawn. A template
    ``templates/figures/NAME.html.j2``, if there is one, adds content below the caption, such as a
    table of the same values. It sees the instance as ``figure``.
    """

    name: ClassVar[str]
    """The name of its module and files, and its anchor in the page."""
    section: ClassVar[Section]
    """The section that shows it; within a section, figures follow the registry's order."""

    @classmethod
    @abstractmethod
    def of(cls, found: Findings) -> Self | None:
        """Return the figure of a campaign; None if the page leaves it out altogether."""

    @property
    def shows(self) -> bool:
        """Whether there is something to draw yet."""
        return True

    @property
    @abstractmethod
    def caption(self) -> str:
        """Explanation of how to read it, in plain text, naming only colors that both color schemes
        have."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """Alternative text for readers who cannot see it."""

    @abstractmethod
    def draw(self) -> Picture:
        """Draw it, within :func:`trajectory.report.canvas.style`."""

    def draw_narrow(self) -> Picture | None:
        """Draw it for a phone; None if a phone scrolls the wide picture."""
        return None
