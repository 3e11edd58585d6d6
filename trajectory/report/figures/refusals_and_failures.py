"""Refusals by rail, and failures by status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajectory.report.drawing.canvas import (
    FAILED,
    INK,
    MUTED,
    REFUSED,
    Ink,
    Picture,
    bare,
    sheet,
)
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.sections import COVERED
from trajectory.report.findings import Findings, Stops

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class RefusalsAndFailures(Figure):
    """One bar for each rail, and one for each status."""

    name = "refusals-and-failures"
    section = COVERED

    stops: Stops
    iterations: int
    paired: bool

    @classmethod
    def of(cls, found: Findings) -> RefusalsAndFailures:
        return cls(found.stops, len(found.iterations), found.about.paired)

    @property
    def shows(self) -> bool:
        return self.iterations > 0

    @property
    def caption(self) -> str:
        ours = (
            ", single replies of a language model included. Right: trials that ended without a "
            "measurement; pruned ones were stopped because their loss could not catch up."
        )
        theirs = ", in the source's words. Right: trials that ended without a measurement."
        return (
            "Left: proposals that the rails refused before training"
            f"{ours if self.paired else theirs} Neither is ever counted as a score."
        )

    @property
    def alt(self) -> str:
        refusals, failures = self.stops.refusals.values(), self.stops.failures.values()
        return (
            f"{sum(refusals)} refusals and {sum(failures)} trials that ended without a measurement."
        )

    def draw(self) -> Picture:
        figure = sheet(0.2 * max(len(self.stops.refusals), len(self.stops.failures)) + 0.8)
        left, right = figure.subplots(1, 2)
        _counts(left, "proposals refused, by rail", self.stops.refusals, REFUSED)
        _counts(
            right,
            f"trials without a measurement, of {self.stops.trials}",
            self.stops.failures,
            FAILED,
        )
        return Picture(self.name, self.alt, figure)


def _counts(axes: Axes, title: str, counts: Mapping[str, int], ink: Ink) -> None:
    axes.set_title(title)
    places = range(len(counts))
    axes.barh(places, list(counts.values()), height=0.62, color=ink.light)
    for place, count in enumerate(counts.values()):
        axes.annotate(
            f"{count}",
            (count, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK.light if count else MUTED.light,
        )
    axes.set_yticks(places, list(counts))
    axes.set_ylim(len(counts) - 0.4, -0.6)
    axes.set_xlim(0, max(1, *counts.values()) * 1.12)
    axes.set_xticks([])
    bare(axes)
