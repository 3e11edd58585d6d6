"""The page's sections, in their order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One of them: on a template of its own, called by its id, or made of its figures."""

    id: str
    """Its address in the page."""
    heading: str
    link: str
    """In the list of sections."""
    always: bool = False
    """There, whether or not a figure of it is spoken of."""


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
