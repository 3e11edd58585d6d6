"""Results of the long runs for configs that short runs ranked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trajectory.longruns import STANDING, LongNoise, LongRuns, gather, standing
from trajectory.report.drawing import losses
from trajectory.report.drawing.canvas import BASE, FAILED, SERIES, Picture, sheet
from trajectory.report.figures.figure import Figure
from trajectory.report.figures.sections import LONG
from trajectory.report.findings import Findings, Ours
from trajectory.report.reading.curves import CurveReader, LearningCurve, merged
from trajectory.rows import Finalist, StressVerdict

Fate: TypeAlias = Literal["baseline", "survived", "failed"]
"""Style of drawing; ``baseline`` only if the baseline survived."""


@dataclass(frozen=True, slots=True)
class LongRun:
    """One config's long runs of the same length."""

    config_hash: str
    rank: int
    """Its rank at the time of the runs."""
    purpose: str
    steps: int
    seeds: int
    standing: Finalist | None
    """Mean with its standard error, and difference to the baseline; None without a score."""
    verdict: StressVerdict
    """The worst verdict of its runs."""
    curve: LearningCurve | None

    @property
    def stands(self) -> bool:
        """Whether it may be launched."""
        return self.verdict.outcome in STANDING

    @property
    def fate(self) -> Fate:
        if not self.stands:
            return "failed"
        return "baseline" if self.purpose == "baseline" else "survived"

    @property
    def name(self) -> str:
        """Its text in the legend."""
        who = "baseline" if self.purpose == "baseline" else f"rank {self.rank}"
        return f"{who}, {self.steps} steps: {self.verdict.outcome}"


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
        runs = tuple(_runs(found.ours)) if found.ours else ()
        return cls(runs) if runs else None

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
                losses.line(axes, curve, BASE, run.name)
            elif run.fate == "failed":
                losses.line(axes, curve, FAILED, run.name, "dashed")
            else:
                again = survivors >= len(SERIES)
                ink = SERIES[survivors % len(SERIES)]
                losses.line(axes, curve, ink, run.name, "dotted" if again else "solid")
                survivors += 1
        losses.finish(axes, [curve for _, curve in drawn])
        return Picture(self.name, self.alt, figure)


def _runs(ours: Ours) -> Iterator[LongRun]:
    newest_first = ours.ledger.stress[::-1]
    for steps in sorted({row.steps for row in newest_first}, reverse=True):
        group = gather(newest_first, steps)
        noise = LongNoise.of(group.values())
        baseline = group.get(ours.ledger.evidence.baseline_hash or "")
        runs = (_long_run(own, standing(own, noise, baseline), ours.read) for own in group.values())
        yield from sorted(runs, key=lambda run: run.rank)


def _long_run(own: LongRuns, standing: Finalist | None, read: CurveReader) -> LongRun:
    first = own.rows[0]
    return LongRun(
        config_hash=own.config_hash,
        rank=first.rank,
        purpose=first.purpose,
        steps=first.steps,
        seeds=len(own.rows),
        standing=standing,
        verdict=own.verdict,
        curve=merged(own.config_hash, [read(row.trial.trial_id) for row in own.rows]),
    )
