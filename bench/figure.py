"""One measured number of the benchmark, with its goal beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MARKDOWN_HEAD = (
    "| part | figure | value | goal | conditions |",
    "| --- | --- | --- | --- | --- |",
)


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

    @property
    def value_text(self) -> str:
        return f"{self.value:,.4g} {self.unit}".rstrip()

    @property
    def goal_text(self) -> str:
        """The goal and whether it was met; empty where there is none."""
        if self.goal is None:
            return ""
        verdict = {True: "met", False: "MISSED", None: "not judged"}[self.met]
        return f"{self.goal}: {verdict}"


def markdown_rows(part: str, figures: Iterable[Figure]) -> list[str]:
    """Rows below :data:`MARKDOWN_HEAD`."""
    return [
        f"| {part} | {row.name} | {row.value_text} | {row.goal_text} | {row.note} |"
        for row in figures
    ]
