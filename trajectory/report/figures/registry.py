"""The report's figures, in the page's order."""

from trajectory.report.figures.coverage import Coverage
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.knob_effects import KnobEffects
from trajectory.report.figures.learning_curves import LearningCurves
from trajectory.report.figures.long_runs import LongRunCurves, RankFidelity
from trajectory.report.figures.progress import Progress
from trajectory.report.figures.time_and_energy import TimeAndEnergy
from trajectory.report.findings import Findings

FIGURES: tuple[type[Figure], ...] = (
    Progress,
    KnobEffects,
    Coverage,
    LearningCurves,
    LongRunCurves,
    RankFidelity,
    TimeAndEnergy,
)


def figures_of(found: Findings) -> tuple[Figure, ...]:
    """Return the figures that the page mentions, whether or not they have data to draw yet."""
    figures = (kind.of(found) for kind in FIGURES)
    return tuple(figure for figure in figures if figure is not None)
