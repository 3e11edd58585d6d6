"""What a figure of the report is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from trajectory.report.drawing.canvas import Picture
from trajectory.report.figures.sections import Section
from trajectory.report.findings import Findings


class Figure(ABC):
    """One figure: the values it shows, how they are drawn, and what is said of them.

    An instance holds plain values; Matplotlib is loaded when it is drawn. What the page says below
    the caption, a table of the same values for instance, is ``templates/figures/NAME.html.j2``,
    where there is one: it sees the instance as ``figure``.
    """

    name: ClassVar[str]
    """The name of its files, and its address in the page; its module is called the same."""
    section: ClassVar[Section]
    """Where it stands, in the order of the registry."""

    @classmethod
    @abstractmethod
    def of(cls, found: Findings) -> Self | None:
        """What it shows of a campaign; None where the page says nothing of the kind."""

    @property
    def shows(self) -> bool:
        """Whether there is something to draw yet."""
        return True

    @property
    @abstractmethod
    def caption(self) -> str:
        """How to read it: plain text, in colours that both lights have."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """What a reader who cannot see it is told."""

    @abstractmethod
    def draw(self) -> Picture:
        """Draw it, within :func:`trajectory.report.drawing.canvas.style`."""

    def draw_narrow(self) -> Picture | None:
        """Draw it for a phone; None if a phone scrolls the wide picture."""
        return None
