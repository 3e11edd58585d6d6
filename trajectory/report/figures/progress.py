"""Score by iteration over the whole search, with the incumbent and the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.spec import BPB, Measure
from trajectory.report.canvas import (
    BASE,
    INK,
    NARROW_IN,
    Picture,
    score_limits,
    sheet,
    show_scores,
)
from trajectory.report.figures.figure import SEARCH, Figure
from trajectory.report.figures.progress_points import (
    MAX_LINKED,
    Point,
    draw_off_scale,
    draw_scores,
    draw_unmeasured,
)
from trajectory.report.findings import Findings
from trajectory.statistics.intervals import Estimate, of_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

MAX_COLUMNS = 5
"""The most columns of a wide legend: six with large counts do not fit."""


@dataclass(frozen=True, slots=True)
class Step:
    """The incumbent from iteration ``first`` to ``last``.

    Its score is its posterior mean now, from all its runs. The score that it was kept with is too
    good by luck, the more so the more candidates there were to choose from.
    """

    first: int
    last: int
    config_hash: str
    believed: float
    """Posterior mean."""


@dataclass(frozen=True)
class Progress(Figure):
    """Scores with their intervals, the incumbents as steps, and the baseline as a band."""

    name = "progress"
    section = SEARCH
    most_kept = 30
    """The most kept iterations in their list, the latest ones; the table of all iterations has all
    of them."""

    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    baseline: Estimate | None
    """Posterior mean with its 95 % interval."""
    sigma: float | None
    """Standard deviation of one run; None while it is unknown."""
    measure: str = "val_bpb"
    paired: bool = True
    scoring: Measure = BPB

    @classmethod
    def of(cls, found: Findings) -> Progress:
        noise = found.noise
        points = []
        for one in found.iterations:
            score = None if one.mean is None else of_runs(one.mean, one.runs, noise)
            points.append(Point(one.iter, one.outcome, score))
        last = max((iteration.iter for iteration in found.iterations), default=0)
        ends = [reign.iter for reign in found.reigns[1:]] + [last]
        steps = []
        for reign, end in zip(found.reigns, ends, strict=False):
            believed = found.believed.get(reign.config_hash)
            if believed is not None:
                steps.append(Step(reign.iter, max(reign.iter, end), reign.config_hash, believed))
        return cls(
            points=tuple(points),
            steps=tuple(steps),
            baseline=found.baseline,
            sigma=noise.sigma if noise else None,
            measure=found.about.measure,
            paired=found.about.paired,
            scoring=found.about.scoring,
        )

    @property
    def shows(self) -> bool:
        scored = any(point.score for point in self.points)
        return scored or bool(self.points and self.baseline)

    @property
    def caption(self) -> str:
        dots = (
            "Each dot is a candidate's mean over its seeds"
            if self.paired
            else "Each dot is one run"
        )
        steps = (
            " The steps show each incumbent's estimated score now, from all its runs. The score "
            "with which it was kept is better, because it was chosen partly by luck. Marks at the "
            "bottom are refused proposals and trials without a score."
        )
        if self.sigma is None:
            return (
                f"{dots}. There are no bars, because no config ran twice and the noise is "
                f"unknown.{steps}"
            )
        bars = (
            "; its bar is the 95 % interval of that mean, from the noise of all configs "
            "(mean ± t·σ/√n). The band is the 95 % interval of the baseline's mean."
        )
        many = len(self.points) > MAX_LINKED
        left_out = " With so many iterations, discarded ones are drawn without their bars."
        return dots + bars + steps + (left_out if many else "")

    @property
    def alt(self) -> str:
        kept = sum(point.outcome == "keep" for point in self.points)
        words = f"{self.measure} of {len(self.points)} iterations, {kept} of them kept."
        if self.baseline:
            words += f" The baseline's estimated score is {self.scoring.text(self.baseline.value)}."
        if self.steps:
            now = self.steps[-1].believed
            words += f" The incumbent's estimated score is now {self.scoring.text(now)}."
        return words

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the axis of scores, as objectives."""
        return score_limits(
            [_bar(point.score) for point in self.points if point.score],
            _bar(self.baseline) if self.baseline else None,
            [step.believed for step in self.steps],
            self.sigma,
        )

    def draw(self) -> Picture:
        return self._drawn(self.name, sheet(4.3), MAX_COLUMNS)

    def draw_narrow(self) -> Picture:
        return self._drawn(f"{self.name}-narrow", sheet(4.2, NARROW_IN), 2)

    def _drawn(self, name: str, figure: Sheet, most_columns: int) -> Picture:
        axes = figure.subplots()
        low, high = self.limits
        axes.set_ylim(low, high)
        _baseline(axes, self.baseline)
        titles = draw_scores(axes, self.points, self.scoring)
        if self.steps:
            edges = [float(step.first) for step in self.steps] + [float(self.steps[-1].last)]
            axes.stairs(
                [step.believed for step in self.steps],
                edges,
                baseline=None,
                color=INK.light,
                linewidth=1.6,
                zorder=5,
                label="incumbent, estimate now",
            )
        show_scores(axes.yaxis, self.scoring)
        draw_off_scale(axes, self.points, high, self.scoring)
        draw_unmeasured(axes, self.points)
        axes.set_xlabel("iteration")
        axes.set_ylabel(f"{self.measure}, {self.scoring.better}")
        last = max((point.iter for point in self.points), default=1)
        pad = 0.05 + 0.03 * last
        axes.set_xlim(-pad, last + pad)
        axes.locator_params(axis="x", integer=True)
        axes.grid(visible=False, axis="x")
        axes.spines[:].set_visible(False)
        entries = len(axes.get_legend_handles_labels()[1])
        lines = math.ceil(entries / most_columns)
        figure.legend(
            loc="outside upper left",
            fontsize=8.5 if most_columns == MAX_COLUMNS else 7.5,
            ncols=math.ceil(entries / lines),
            handletextpad=0.4,
            columnspacing=1.4,
        )
        return Picture(name, self.alt, figure, titles)


def _bar(estimate: Estimate) -> tuple[float, float]:
    """Return the estimate's mean, and half the length of its interval."""
    return estimate.value, 0.0 if estimate.hi is None else estimate.hi - estimate.value


def _baseline(axes: Axes, baseline: Estimate | None) -> None:
    if baseline is None:
        return
    axes.axhline(
        baseline.value, color=BASE.light, linewidth=1.1, linestyle=(0, (5, 3)), label="baseline"
    )
    if baseline.lo is not None and baseline.hi is not None:
        axes.axhspan(
            baseline.lo,
            baseline.hi,
            color=BASE.light,
            alpha=0.12,
            linewidth=0,
            label="95 % interval of a mean",
        )
