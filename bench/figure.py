"""One measured number of the benchmark, with its goal."""

from collections.abc import Iterable
from dataclasses import dataclass

MARKDOWN_HEAD = (
    "| part | figure | value | goal | conditions |",
    "| --- | --- | --- | --- | --- |",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the printed table. ``goal`` and ``met`` are None if there is no goal."""

    name: str
    value: float
    unit: str
    goal: str | None = None
    met: bool | None = None
    note: str = ""
    """Conditions, spread, and the limiting factor."""

    @property
    def value_text(self) -> str:
        return f"{self.value:,.4g} {self.unit}".rstrip()

    @property
    def goal_text(self) -> str:
        """Return the goal and whether it was met; empty if there is none."""
        if self.goal is None:
            return ""
        verdict = {True: "met", False: "MISSED", None: "not judged"}[self.met]
        return f"{self.goal}: {verdict}"


def markdown_rows(part: str, figures: Iterable[Figure]) -> list[str]:
    """Return the table's rows below :data:`MARKDOWN_HEAD`."""
    return [
        f"| {part} | {row.name} | {row.value_text} | {row.goal_text} | {row.note} |"
        for row in figures
    ]
