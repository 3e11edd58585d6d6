"""Learning curves of the best configs and of long runs, and the ranking that long runs test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from trajectory.longruns import (
    STANDING,
    LongNoise,
    LongRuns,
    RankingTest,
    gather,
    ranking_test,
    standing,
)
from trajectory.report.about import About
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
from trajectory.report.figures import LEARNING, LONG, Figure
from trajectory.report.findings import Findings
from trajectory.report.iterations import CurveReader, LearningCurve, curve_of, merged
from trajectory.rows import Finalist, FinalistsRow, StressRow

CURVES = 5
"""The most of the best configs whose curves are drawn."""


def learning_curves(found: Findings) -> Figure | None:
    """Return curves of the best configs that have one, and the baseline's; None without any."""
    ledger = found.ledger
    baseline = curve_of(ledger.baseline, found.read) if ledger.baseline else None
    best = []
    for ranked in [one.entry for one in found.best if not one.is_baseline][:CURVES]:
        curve = curve_of(ledger.evidence.configs[ranked.config_hash], found.read)
        if curve is not None:
            best.append((f"iteration {ranked.iter}", curve))
    if not best and baseline is None:
        return None
    what, unit = (
        "The loss is on the training text, in nats per token; decisions use val_bpb on held-out "
        "text.",
        "nats per token",
    )
    if ledger.row.script is not None:
        what, unit = "The loss is the curve that the command printed; decisions use its score.", ""
    caption = (
        "Training loss of the best configs and the baseline, mean over n seeds and over a trailing "
        f"window of a twentieth of the curve. {what}"
    )
    draw = partial(_draw_learning_curves, best, baseline, unit)
    return Figure("learning-curves", LEARNING, caption, draw, best)


def _draw_learning_curves(
    best: Sequence[tuple[str, LearningCurve]], baseline: LearningCurve | None, unit: str
) -> Picture:
    figure = sheet(3.7)
    axes = figure.subplots()
    drawn = [curve for _, curve in best]
    if baseline is not None:
        draw_loss(axes, baseline, BASE, f"baseline, n={baseline.seeds}", "dashed")
        drawn.append(baseline)
    for ink, (name, curve) in zip(SERIES, best, strict=False):
        draw_loss(axes, curve, ink, f"{name}, n={curve.seeds}")
    finish_losses(axes, drawn, unit)
    alt = f"Training loss of the {len(best)} best configs."
    return Picture("learning-curves", alt, figure)


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
    def stands(self) -> bool:
        """Whether it may be launched."""
        return self.runs.verdict.outcome in STANDING

    @property
    def name(self) -> str:
        """Its text in the legend."""
        first = self.first
        who = "baseline" if first.purpose == "baseline" else f"rank {first.rank}"
        return f"{who}, {first.steps} steps: {self.runs.verdict.outcome}"


def long_run(own: LongRuns, standing: Finalist | None, read: CurveReader) -> LongRun:
    """Return a config's long runs with their mean curve."""
    curves = [read(row.trial.trial_id) for row in own.rows]
    return LongRun(own, standing, merged(own.config_hash, curves))


def long_runs(found: Findings) -> Figure | None:
    """Return learning curves of the long runs, the longest first, then by rank; None without
    any."""
    ledger = found.ledger
    newest_first = ledger.newest(StressRow)
    runs: list[LongRun] = []
    for steps in sorted({row.steps for row in newest_first}, reverse=True):
        group = gather(newest_first, steps)
        noise = LongNoise.of(group.values())
        baseline = group.get(ledger.evidence.baseline_hash or "")
        same = [long_run(own, standing(own, noise, baseline), found.read) for own in group.values()]
        runs += sorted(same, key=lambda run: run.first.rank)
    if not runs:
        return None
    caption = (
        "Training loss of the stress test's runs, mean over seeds and over a trailing window of a "
        "twentieth of the curve; dashed lines did not survive."
    )
    draw = partial(draw_long_runs, runs) if any(run.curve for run in runs) else None
    return Figure("long-runs", LONG, caption, draw, runs)


def draw_long_runs(runs: Sequence[LongRun]) -> Picture:
    """Draw the curves: dashed for runs that did not survive, dotted once the colors repeat."""
    figure = sheet(3.9)
    axes = figure.subplots()
    survivors = 0
    drawn = [(run, run.curve) for run in runs if run.curve is not None]
    for run, curve in drawn:
        if not run.stands:
            draw_loss(axes, curve, FAILED, run.name, "dashed")
        elif run.first.purpose == "baseline":
            draw_loss(axes, curve, BASE, run.name)
        else:
            again = survivors >= len(SERIES)
            ink = SERIES[survivors % len(SERIES)]
            draw_loss(axes, curve, ink, run.name, "dotted" if again else "solid")
            survivors += 1
    finish_losses(axes, [curve for _, curve in drawn])
    return Picture("long-runs", f"Training loss of {len(drawn)} configs' long runs.", figure)


def fidelity_test(found: Findings) -> RankingTest | None:
    """Return the latest comparison of the ranking with a spread of long runs; None without one."""
    ledger = found.ledger
    if not ledger.newest(StressRow, 1):
        return None
    newest_first, ended = ledger.newest(StressRow), ledger.newest(FinalistsRow)
    spread = next((row.spread for row in ended if row.spread), ())
    ranked = {entry.config_hash for entry in ledger.evidence.contenders()}
    known = [name for name in spread if name in ranked]
    return ranking_test(found.posteriors.of_configs(known), newest_first, ended)


def rank_fidelity(found: Findings) -> Figure | None:
    """Return one point for each config: its short score against its long one. Failures are on the
    upper edge."""
    test = fidelity_test(found)
    if test is None:
        return None
    caption = (
        "Configs spread evenly over the ranking: posterior mean of the short runs against the mean "
        f"of {test.steps:,} steps, each with its rank at the time. If the points lie on a rising "
        "line, short runs order configs as long ones do."
    )
    draw = partial(_draw_fidelity, test, found.about) if test.n > 0 else None
    return Figure("rank-fidelity", LONG, caption, draw, test)


def _draw_fidelity(test: RankingTest, about: About) -> Picture:
    figure = sheet(3.9)
    axes = figure.subplots()
    measured = [pair for pair in test.pairs if math.isfinite(pair.long)]
    failed = [pair for pair in test.pairs if math.isinf(pair.long)]
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
            [0.97 if about.scoring.direction == "minimise" else 0.03] * len(failed),
            linestyle="none",
            marker="x",
            color=FAILED.light,
            transform=axes.get_xaxis_transform(),
            label=f"no long score ({len(failed)})",
        )
        axes.legend(loc="lower right")
    show_scores(axes.xaxis, about.scoring)
    show_scores(axes.yaxis, about.scoring)
    axes.set_xlabel(f"short runs: posterior mean {about.measure}", color=INK.light)
    axes.set_ylabel(f"{test.steps} steps: mean {about.measure}", color=INK.light)
    axes.spines[:].set_visible(False)
    return Picture("rank-fidelity", f"Short against long scores of {test.n} configs.", figure)
