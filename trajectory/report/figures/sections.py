"""The page's sections, in order."""

from __future__ import annotations

from dataclasses import dataclass


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
