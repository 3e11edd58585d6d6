"""Time, energy and money that the campaign used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from trajectory.report.canvas import (
    BASE,
    DISCARD,
    FAILED,
    KEEP,
    REFUSED,
    RULE,
    SERIES,
    Ink,
    Picture,
    bare,
    sheet,
)
from trajectory.report.figures import SPENT, Figure
from trajectory.report.findings import Findings
from trajectory.report.iterations import PARTS, Spent
from trajectory.rows import ConfirmRow, StressRow
from trajectory.spending import SearchBill

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BARS = 120
"""The most bars; more iterations than this are averaged in groups of equal size."""
PART_INK: dict[str, Ink] = {
    "training": KEEP,
    "evaluation": SERIES[5],
    "setup": SERIES[2],
    "proposing": REFUSED,
    "failed": FAILED,
    "other": DISCARD,
}
PART_NAME = {
    "training": "training",
    "evaluation": "evaluation",
    "setup": "trial set-up",
    "proposing": "proposing",
    "failed": "failed and pruned trials",
    "other": "the rest",
}

_LISTED = {**PART_NAME, "failed": "trials without a measurement"}


@dataclass(frozen=True, slots=True)
class Bar:
    """Consecutive iterations, averaged."""

    first: int
    last: int
    spent: Spent
    """Mean of one iteration, in seconds."""
    energy_wh: float | None
    """Mean of one iteration, over those that were metered."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Time, energy and money that a campaign used.

    ``cost_usd = energy_wh / 1000 * usd_per_kwh`` is the price of the metered energy. The bill also
    has the unmetered energy and the machine's write-off.
    """

    total: Spent
    """Seconds of trials in calibration and iterations, summed over all lanes."""
    active_s: float
    """Busy time of the same work by the clock, in which simultaneous trials count once."""
    long_runs_s: float
    """Additional busy time of long runs, in seconds by the clock."""
    fresh_runs_s: float
    """The same for the runs of confirmations."""
    elapsed_s: float
    """Time from the campaign's creation to its last row, pauses and stops included."""
    energy_wh: float | None
    """Metered in calibration, iterations, long and fresh runs; None if nothing was metered."""
    unmetered: int
    """Iterations with trials whose energy was not metered."""
    cost_usd: float | None
    bill: SearchBill
    """The whole cost of the search, as ``autoresearch cost`` prints it."""
    device: str
    """Mean and peak of the device's use, as a clause; empty if it was not sampled."""
    of_command: bool
    """Whether a command trains; then its time for evaluation is unknown."""

    @property
    def parts(self) -> dict[str, float]:
        """Labels of the table's rows, and their seconds."""
        spent = self.total.by_part()
        if self.of_command:
            return {
                "the command's runs, its own evaluation included": spent["training"],
                **{_LISTED[part]: spent[part] for part in PARTS[2:]},
            }
        return {_LISTED[part]: seconds for part, seconds in spent.items()}


def usage_of(found: Findings) -> Usage:
    """Return what a campaign used."""
    ledger = found.ledger
    total = Spent()
    total.add(ledger.calibration)
    for iteration in ledger.iterations:
        total.add(iteration.spent)
    metered = [ledger.calibration_wh, *(iteration.energy_wh for iteration in ledger.iterations)]
    metered += [row.energy_wh for row in ledger.rows_of(StressRow)]
    metered += [row.energy_wh for row in ledger.rows_of(ConfirmRow)]
    known = [value for value in metered if value is not None]
    energy_wh = sum(known) if known else None
    elapsed_s = 0.0
    with suppress(ValueError, TypeError):  # only in an edited journal
        began = datetime.fromisoformat(ledger.row.created_at)
        elapsed_s = max(0.0, (datetime.fromisoformat(ledger.last_at) - began).total_seconds())
    return Usage(
        total=total,
        active_s=ledger.active_s["search"] if ledger.lane_use.lanes else total.total,
        long_runs_s=ledger.active_s["stress"],
        fresh_runs_s=ledger.active_s["fresh"],
        elapsed_s=elapsed_s,
        energy_wh=energy_wh,
        unmetered=sum(
            iteration.energy_wh is None and iteration.outcome != "refused"
            for iteration in ledger.iterations
        ),
        cost_usd=None if energy_wh is None else energy_wh / 1000 * found.bill.usd_per_kwh,
        bill=found.bill,
        device=found.device,
        of_command=ledger.row.script is not None,
    )


def time_and_energy(found: Findings) -> Figure:
    """Return seconds by iteration, stacked by activity, and below them the energy if it was
    metered."""
    usage = usage_of(found)
    iterations = sorted(found.iterations, key=lambda iteration: iteration.iter)
    size = -(-len(iterations) // MAX_BARS) or 1
    bars = []
    for start in range(0, len(iterations), size):
        group = iterations[start : start + size]
        spent = Spent()
        for iteration in group:
            spent.add(iteration.spent, weight=1 / len(group))
        metered = [one.energy_wh for one in group if one.energy_wh is not None]
        bars.append(Bar(group[0].iter, group[-1].iter, spent, fmean(metered) if metered else None))
    averaged = any(bar.last > bar.first for bar in bars)
    mean = "; each bar is the mean of several iterations" if averaged else ""
    below = " Below: the watt-hours that the device's meter counted."
    caption = (
        f"Seconds of each iteration by use, stacked{mean}. "
        "The rest: starting and reaping processes, and the record."
        f"{below if usage.energy_wh is not None else ''}"
    )
    draw = partial(_draw, usage, bars) if bars else None
    return Figure("time-and-energy", SPENT, caption, draw, usage)


def _draw(usage: Usage, bars: Sequence[Bar]) -> Picture:
    metered = any(bar.energy_wh is not None for bar in bars)
    figure = sheet(4.9 if metered else 3.3)
    if metered:
        time, energy = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [2, 1]})
        energy.stairs(
            [bar.energy_wh or 0.0 for bar in bars],
            _edges(bars),
            fill=True,
            color=BASE.light,
            alpha=0.75,
            linewidth=0,
        )
        energy.set_ylabel("Wh an iteration")
    else:
        time = energy = figure.subplots()
    _draw_seconds(time, bars)
    _tidy(energy, steps="iteration")
    figure.legend(loc="outside upper left", ncols=6, handlelength=1, columnspacing=1.4)
    work = usage.total
    alt = f"{work.total:.0f} s of work, of which training {work.training:.0f} s."
    if usage.active_s < work.total:
        alt = (
            f"{usage.active_s:.0f} s of work by the clock; concurrent trials took "
            f"{work.total:.0f} s, of which training {work.training:.0f} s."
        )
    return Picture("time-and-energy", alt, figure)


def _draw_seconds(axes: Axes, bars: Sequence[Bar]) -> None:
    edges = _edges(bars)
    floor = [0.0] * len(bars)
    for part in PARTS:
        heights = [bar.spent.by_part()[part] for bar in bars]
        if not any(heights):
            continue
        top = [a + b for a, b in zip(floor, heights, strict=True)]
        axes.stairs(
            top,
            edges,
            baseline=floor,
            fill=True,
            color=PART_INK[part].light,
            linewidth=0,
            label=PART_NAME[part],
        )
        floor = top
    axes.set_ylabel("seconds an iteration")
    _tidy(axes)


def _edges(bars: Sequence[Bar]) -> list[float]:
    return [bar.first - 0.5 for bar in bars] + [bars[-1].last + 0.5]


def _tidy(axes: Axes, steps: str = "") -> None:
    bare(axes, grid="y", steps=steps)
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(RULE.light)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
