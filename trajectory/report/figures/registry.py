"""The report's figures, in the page's order."""

from collections.abc import Callable

from trajectory.report.figures.coverage import coverage
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.knob_effects import knob_effects
from trajectory.report.figures.learning_curves import learning_curves
from trajectory.report.figures.long_runs import long_runs, rank_fidelity
from trajectory.report.figures.progress import progress
from trajectory.report.figures.time_and_energy import time_and_energy
from trajectory.report.findings import Findings

FIGURES: tuple[Callable[[Findings], Figure | None], ...] = (
    *(progress, knob_effects, coverage, learning_curves),
    *(long_runs, rank_fidelity, time_and_energy),
)


def figures_of(found: Findings) -> tuple[Figure, ...]:
    """Return the figures that the page mentions, whether or not they have data to draw yet."""
    return tuple(figure for make in FIGURES if (figure := make(found)) is not None)
