"""Base class of the report's figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from trajectory.report.drawing.canvas import Picture
from trajectory.report.figures.sections import Section
from trajectory.report.findings import Findings


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
        """Draw it, within :func:`trajectory.report.drawing.canvas.style`."""

    def draw_narrow(self) -> Picture | None:
        """Draw it for a phone; None if a phone scrolls the wide picture."""
        return None
