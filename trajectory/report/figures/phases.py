"""Hours and money of the three phases: the search, the long runs, and the cloud run."""

from collections.abc import Sequence
from functools import partial

from trajectory.report.canvas import KEEP, Picture, bare, sheet
from trajectory.report.figures import SPENT, Figure
from trajectory.report.findings import Findings
from trajectory.spending import Phase


def phases(found: Findings) -> Figure | None:
    """Return the hours and money of each phase; None while only the search has any."""
    known = [phase for phase in found.bill.phases if phase.hours > 0]
    if len(known) < 2:
        return None
    text = "; ".join(f"{one.name} {one.hours:,.3g} h, ${one.usd:,.2f} ({one.why})" for one in known)
    caption = f"Hours of each phase, on a logarithmic axis, and its cost. {text}."
    return Figure("phases", SPENT, caption, partial(phases_picture, known))


def phases_picture(known: Sequence[Phase]) -> Picture:
    """Draw a bar of hours for each phase, with its cost."""
    figure = sheet(0.6 + 0.35 * len(known))
    axes = figure.subplots()
    bare(axes)
    names = [phase.name for phase in known]
    bars = axes.barh(names, [phase.hours for phase in known], color=KEEP.light, height=0.6)
    axes.bar_label(bars, [f" ${phase.usd:,.2f}" for phase in known])
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.invert_yaxis()
    axes.set_xlabel("hours")
    return Picture("phases", "Hours and cost of the search, the long runs and the cloud.", figure)
