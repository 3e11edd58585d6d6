"""The search from its first iteration to its last, and what it found: the score by iteration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.spec import BPB, Measure
from trajectory.report.drawing.canvas import (
    BASE,
    INK,
    Picture,
    sheet,
    show_scores,
)
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.progress_points import (
    MAX_LINKED,
    Point,
    draw_off_scale,
    draw_scores,
    draw_unmeasured,
)
from trajectory.report.figures.sections import SEARCH
from trajectory.report.findings import Findings
from trajectory.report.reading.turns import Turn
from trajectory.report.statistics import Estimate, of_runs
from trajectory.statistics.run_noise import RunNoise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 5
"""The most columns of the legend, which goes on in a second line: six with large counts are too
wide."""


@dataclass(frozen=True, slots=True)
class Step:
    """The incumbent from iteration ``first`` to ``last``.

    Its score is what it is believed to score by now, from all of its runs: the score it was kept
    with is the luckier, the more candidates there were to choose from.
    """

    first: int
    last: int
    config_hash: str
    believed: float
    """Posterior mean."""


@dataclass(frozen=True)
class Progress(Figure):
    """Scores with their intervals, the incumbent's steps, the baseline's band."""

    name = "progress"
    section = SEARCH
    most_kept = 30
    """Kept iterations in the list of them, the latest; the table of all iterations has all."""

    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    baseline: Estimate | None
    """As believed, with its 95 % interval."""
    one_run_half: float | None
    """Half the band about the baseline in which 95 of 100 of its single runs would fall; None while
    the noise is unknown, or the baseline unmeasured."""
    measure: str = "val_bpb"
    paired: bool = True
    ruler: Measure = BPB

    @classmethod
    def of(cls, found: Findings) -> Progress:
        noise = found.noise
        return cls(
            points=tuple(_point(turn, noise) for turn in found.turns),
            steps=tuple(_held(found)),
            baseline=found.baseline,
            one_run_half=found.one_run_half,
            measure=found.about.measure,
            paired=found.about.paired,
            ruler=found.about.ruler,
        )

    @property
    def shows(self) -> bool:
        scored = any(point.score for point in self.points)
        return scored or bool(self.points and self.baseline)

    @property
    def barred(self) -> bool:
        """Whether scores have intervals: not while the noise is unknown."""
        return any(point.score and point.score.lo is not None for point in self.points)

    @property
    def caption(self) -> str:
        dots = (
            "Each dot is a candidate's mean over its seeds"
            if self.paired
            else "Each dot is one run"
        )
        steps = (
            " The solid steps are the incumbents at what each is believed to score by now, from "
            "all its runs: the score it was kept with is the lucky one. Marks at the foot are "
            "trials without a measurement and refused proposals."
        )
        if self.one_run_half is None and not self.barred:
            bars = ". There are no bars: nothing was run twice, so the noise is unknown."
            return dots + bars + steps
        bars = (
            ", its bar the 95 % interval from the pooled noise (mean ± t·σ/√n). The shaded band is "
            "where 95 of 100 single runs of the baseline would fall, by its own spread."
        )
        many = len(self.points) > MAX_LINKED
        left_out = " With so many iterations, discarded ones are drawn without their bars."
        return dots + bars + steps + (left_out if many else "")

    @property
    def alt(self) -> str:
        kept = sum(point.outcome == "keep" for point in self.points)
        words = f"{self.measure} of {len(self.points)} iterations, {kept} of them kept."
        if self.baseline:
            words += f" The baseline is believed to score {self.ruler.text(self.baseline.value)}."
        if self.steps:
            now = self.steps[-1].believed
            words += f" The incumbent is now believed to score {self.ruler.text(now)}."
        return words

    def draw(self) -> Picture:
        figure = sheet(4.3)
        axes = figure.subplots()
        _baseline(axes, self)
        titles = draw_scores(axes, self.points, self.ruler)
        _steps(axes, self)
        low, high = _limits(self)
        axes.set_ylim(low, high)
        show_scores(axes.yaxis, self.ruler)
        draw_off_scale(axes, self.points, high, self.ruler)
        draw_unmeasured(axes, self.points)
        axes.set_xlabel("iteration")
        axes.set_ylabel(
            f"{self.measure}, {self.ruler.better}{'; bars: 95 %' if self.barred else ''}"
        )
        last = max((point.iter for point in self.points), default=1)
        axes.set_xlim(-0.02 * last, last * 1.02 + 0.5)
        axes.locator_params(axis="x", integer=True)
        axes.grid(visible=False, axis="x")
        axes.spines[:].set_visible(False)
        entries = len(axes.get_legend_handles_labels()[1])
        columns = entries if entries <= MAX_COLUMNS else math.ceil(entries / 2)
        figure.legend(loc="outside upper left", ncols=columns, handletextpad=0.4, columnspacing=1.4)
        return Picture(self.name, self.alt, figure, titles)


def _point(turn: Turn, noise: RunNoise | None) -> Point:
    score = None if turn.mean is None else of_runs(turn.mean, turn.runs, noise)
    return Point(turn.iter, turn.outcome, score)


def _held(found: Findings) -> Iterable[Step]:
    last = max((turn.iter for turn in found.turns), default=0)
    ends = [reign.iter for reign in found.reigns[1:]] + [last]
    for reign, end in zip(found.reigns, ends, strict=False):
        believed = found.believed.get(reign.config_hash)
        if believed is not None:
            yield Step(reign.iter, max(reign.iter, end), reign.config_hash, believed)


def _baseline(axes: Axes, progress: Progress) -> None:
    if progress.baseline is None:
        return
    mean, half = progress.baseline.value, progress.one_run_half
    axes.axhline(mean, color=BASE.light, linewidth=1.1, linestyle=(0, (5, 3)), label="baseline")
    if half is not None:
        axes.axhspan(
            mean - half,
            mean + half,
            color=BASE.light,
            alpha=0.12,
            linewidth=0,
            label="95 % of its single runs",
        )


def _steps(axes: Axes, progress: Progress) -> None:
    if not progress.steps:
        return
    edges = [float(step.first) for step in progress.steps] + [float(progress.steps[-1].last)]
    values = [step.believed for step in progress.steps]
    axes.stairs(
        values,
        edges,
        baseline=None,
        color=INK.light,
        linewidth=1.6,
        zorder=5,
        label="incumbent, as believed now",
    )


def _limits(progress: Progress) -> tuple[float, float]:
    """From the best, or the foot of the baseline's band, to a little above the bulk: a diverged run
    must not flatten the rest."""
    scores = sorted(p.score.value for p in progress.points if p.score)
    low = [s for p in progress.points if p.score and (s := p.score.lo or p.score.value)]
    low += [step.believed for step in progress.steps]
    band = progress.one_run_half or 0.0
    low += [progress.baseline.value - band] if progress.baseline else []
    if not low:
        return 0.0, 1.0
    high = [progress.baseline.value + band] if progress.baseline else []
    if scores:
        quarter, half = scores[len(scores) // 4], scores[len(scores) // 2]
        upper = scores[(3 * len(scores)) // 4]
        high.append(min(scores[-1], max(upper + 2 * (upper - quarter), half)))
    bottom, top = min(low), max(high)
    margin = 0.06 * (top - bottom) or 0.01
    return bottom - margin, top + margin
