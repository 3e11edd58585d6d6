"""One measured number of the benchmark, with its goal beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the printed table. ``goal`` and ``met`` are None where there is no goal."""

    name: str
    value: float
    unit: str
    goal: str | None = None
    met: bool | None = None
    note: str = ""
    """Conditions, spread, and what limits it."""
