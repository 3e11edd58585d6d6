"""Long runs: their curves, and their agreement with the ranking by short runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainer.spec import BPB, Measure
from trajectory.longruns import (
    STANDING,
    LongNoise,
    LongRuns,
    RankingTest,
    gather,
    ranking_test,
    standing,
)
from trajectory.report.canvas import (
    BASE,
    FAILED,
    INK,
    KEEP,
    MUTED,
    SERIES,
    Picture,
    draw_loss,
    finish_losses,
    sheet,
    show_scores,
)
from trajectory.report.figures.figure import LONG, Figure
from trajectory.report.findings import Findings
from trajectory.report.reading.iterations import CurveReader, LearningCurve, merged
from trajectory.rows import Finalist, StressRow, StressVerdict

Fate: TypeAlias = Literal["baseline", "survived", "failed"]
"""Style of drawing; ``baseline`` only if the baseline survived."""


@dataclass(frozen=True, slots=True)
class LongRun:
    """One config's long runs of the same length."""

    runs: LongRuns
    standing: Finalist | None
    """Mean with its standard error, and difference to the baseline; None without a score."""
    curve: LearningCurve | None

    @property
    def first(self) -> StressRow:
        """One of its runs, for what all of them share."""
        return self.runs.rows[0]

    @property
    def verdict(self) -> StressVerdict:
        """The worst verdict of its runs."""
        return self.runs.verdict

    @property
    def stands(self) -> bool:
        """Whether it may be launched."""
        return self.verdict.outcome in STANDING

    @property
    def fate(self) -> Fate:
        if not self.stands:
            return "failed"
        return "baseline" if self.first.purpose == "baseline" else "survived"

    @property
    def name(self) -> str:
        """Its text in the legend."""
        first = self.first
        who = "baseline" if first.purpose == "baseline" else f"rank {first.rank}"
        return f"{who}, {first.steps} steps: {self.verdict.outcome}"


@dataclass(frozen=True)
class LongRunCurves(Figure):
    """Learning curves of the long runs: dashed for runs that did not survive, dotted once the
    colors repeat."""

    name = "long-runs"
    section = LONG
    caption = (
        "Training loss of the stress test's runs, mean over seeds and over a trailing window "
        "of a twentieth of the curve; dashed lines did not survive."
    )

    runs: tuple[LongRun, ...]
    """The longest first, then by rank."""

    @classmethod
    def of(cls, found: Findings) -> LongRunCurves | None:
        if found.ours is None:
            return None
        ledger, read = found.ours.ledger, found.ours.read
        newest_first = ledger.stress[::-1]
        runs: list[LongRun] = []
        for steps in sorted({row.steps for row in newest_first}, reverse=True):
            group = gather(newest_first, steps)
            noise = LongNoise.of(group.values())
            baseline = group.get(ledger.evidence.baseline_hash or "")
            same = [long_run(own, standing(own, noise, baseline), read) for own in group.values()]
            runs += sorted(same, key=lambda run: run.first.rank)
        return cls(tuple(runs)) if runs else None

    @property
    def shows(self) -> bool:
        return any(run.curve is not None for run in self.runs)

    @property
    def alt(self) -> str:
        drawn = sum(run.curve is not None for run in self.runs)
        return f"Training loss of {drawn} configs' long runs."

    def draw(self) -> Picture:
        figure = sheet(3.9)
        axes = figure.subplots()
        survivors = 0
        drawn = [(run, run.curve) for run in self.runs if run.curve is not None]
        for run, curve in drawn:
            if run.fate == "baseline":
                draw_loss(axes, curve, BASE, run.name)
            elif run.fate == "failed":
                draw_loss(axes, curve, FAILED, run.name, "dashed")
            else:
                again = survivors >= len(SERIES)
                ink = SERIES[survivors % len(SERIES)]
                draw_loss(axes, curve, ink, run.name, "dotted" if again else "solid")
                survivors += 1
        finish_losses(axes, [curve for _, curve in drawn])
        return Picture(self.name, self.alt, figure)


def long_run(own: LongRuns, standing: Finalist | None, read: CurveReader) -> LongRun:
    """Return a config's long runs with their mean curve."""
    curves = [read(row.trial.trial_id) for row in own.rows]
    return LongRun(own, standing, merged(own.config_hash, curves))


@dataclass(frozen=True)
class RankFidelity(Figure):
    """One point for each config: its short score against its long one. Failures are on the upper
    edge."""

    name = "rank-fidelity"
    section = LONG

    test: RankingTest
    measure: str = "val_bpb"
    scoring: Measure = BPB

    @classmethod
    def of(cls, found: Findings) -> RankFidelity | None:
        if found.ours is None or not found.ours.ledger.stress:
            return None
        ledger, posteriors = found.ours.ledger, found.ours.posteriors
        newest_first, ended = ledger.stress[::-1], ledger.finalists[::-1]
        spread = next((row.spread for row in ended if row.spread), ())
        ranked = {entry.config_hash for entry in ledger.evidence.contenders()}
        known = [name for name in spread if name in ranked]
        test = ranking_test(posteriors.of_configs(known), newest_first, ended)
        return cls(test, found.about.measure, found.about.scoring) if test else None

    @property
    def shows(self) -> bool:
        return self.test.n > 0

    @property
    def caption(self) -> str:
        return (
            "Configs spread evenly over the ranking: posterior mean of the short runs against the "
            f"mean of {self.test.steps:,} steps, each with its rank at the time. If the points "
            "lie on a rising line, short runs order configs as long ones do."
        )

    @property
    def alt(self) -> str:
        return f"Short against long scores of {self.test.n} configs."

    def draw(self) -> Picture:
        figure = sheet(3.9)
        axes = figure.subplots()
        measured = [pair for pair in self.test.pairs if math.isfinite(pair.long)]
        failed = [pair for pair in self.test.pairs if math.isinf(pair.long)]
        axes.scatter(
            [pair.short for pair in measured],
            [pair.long for pair in measured],
            s=34,
            color=KEEP.light,
            linewidths=0,
            zorder=3,
        )
        for pair in measured:
            axes.annotate(
                f"{pair.rank}",
                (pair.short, pair.long),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=7.5,
                color=MUTED.light,
            )
        if failed:
            axes.plot(
                [pair.short for pair in failed],
                [0.97 if self.scoring.direction == "minimise" else 0.03] * len(failed),
                linestyle="none",
                marker="x",
                color=FAILED.light,
                transform=axes.get_xaxis_transform(),
                label=f"no long score ({len(failed)})",
            )
            axes.legend(loc="lower right")
        show_scores(axes.xaxis, self.scoring)
        show_scores(axes.yaxis, self.scoring)
        axes.set_xlabel(f"short runs: posterior mean {self.measure}")
        axes.set_ylabel(f"{self.test.steps} steps: mean {self.measure}")
        axes.yaxis.label.set_color(INK.light)
        axes.xaxis.label.set_color(INK.light)
        axes.spines[:].set_visible(False)
        return Picture(self.name, self.alt, figure)
