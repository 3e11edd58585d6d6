"""The runs of a ladder as measurements: what each recipe came to at each size and length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt
from funnel.forecast.scaling_law import FinishedRun, ScalingFit, fit_scaling_law
from funnel.ladder.lead import LeadPoint
from funnel.ladder.log import LadderLog
from funnel.ladder.rates import TriedRate
from funnel.ladder.shapes import training_flops
from trainer.spec import Config, TrialFailed, gpt
from trajectory.ladder_plan import LadderPlanRow, Recipe
from trajectory.rows import LadderRow, StressOutcome

USABLE: frozenset[StressOutcome] = frozenset({"survives", "spikes", "plateaus"})
"""What a run may have shown and still be a measurement of its size and length."""


class LadderPoint(Frozen):
    """One run that ended with a measurement."""

    recipe: Recipe
    rung: PositiveInt
    params: PositiveInt
    """Without the tables of tokens and positions and an untied head."""
    length: PositiveInt
    """Tokens as the ladder wants them, the same for both recipes."""
    tokens: PositiveInt
    steps: PositiveInt
    flops: Positive
    """Of training, counted as :mod:`trainer.machine.flops` does."""
    seed: NonNegativeInt
    lr_factor: Positive
    val_bpb: Positive
    config: Config
    trial_id: str

    @property
    def finished(self) -> FinishedRun:
        """As a scaling law takes it, in bits per byte."""
        return FinishedRun(
            params=self.params, tokens=self.tokens, loss=self.val_bpb, seed=self.seed
        )


def points_of(
    log: LadderLog, plan: LadderPlanRow, vocab_size: int
) -> tuple[list[LadderPoint], list[str]]:
    """The measurements of a plan in its order; and the runs that gave none, in words."""
    found: list[LadderPoint] = []
    left_out: list[str] = []
    done = log.done(plan)
    for number, run in enumerate(plan.runs):
        for seed in run.seeds:
            row = done.get((number, seed))
            if row is None:
                continue
            if row.trial.val_bpb is None or row.verdict.outcome not in USABLE:
                left_out.append(_left_out(row))
                continue
            found.append(
                LadderPoint(
                    recipe=run.recipe,
                    rung=run.rung,
                    params=run.params,
                    length=run.length,
                    tokens=run.tokens,
                    steps=run.steps,
                    flops=training_flops(run.config, run.tokens, vocab_size),
                    seed=seed,
                    lr_factor=run.lr_factor,
                    val_bpb=row.trial.val_bpb,
                    config=run.config,
                    trial_id=row.trial.trial_id,
                )
            )
    return found, left_out


def of_recipe(points: Iterable[LadderPoint], recipe: Recipe) -> list[LadderPoint]:
    """Its runs at the rules' own rate."""
    return [point for point in points if point.recipe == recipe and point.lr_factor == 1]


def law_of(points: Sequence[LadderPoint], seed: int) -> ScalingFit | str:
    """The law of one recipe's runs, or why there is none."""
    try:
        return fit_scaling_law([point.finished for point in points], seed=seed)
    except HandoffError as error:
        return str(error)


def lead_points(points: Sequence[LadderPoint]) -> Iterator[LeadPoint]:
    """The sizes and lengths at which both recipes have runs on common seeds."""
    baselines = {
        (point.rung, point.length, point.seed): point for point in of_recipe(points, "baseline")
    }
    pairs: dict[tuple[int, int], list[tuple[LadderPoint, LadderPoint]]] = {}
    for winner in of_recipe(points, "winner"):
        baseline = baselines.get((winner.rung, winner.length, winner.seed))
        if baseline is not None:
            pairs.setdefault((winner.rung, winner.length), []).append((winner, baseline))
    for both in pairs.values():
        first, _ = both[0]
        yield LeadPoint(
            rung=first.rung,
            params=first.params,
            tokens=first.tokens,
            flops=first.flops,
            lead_bpb=fmean(baseline.val_bpb - winner.val_bpb for winner, baseline in both),
            seeds=len(both),
        )


def tried_rates(points: Iterable[LadderPoint]) -> Iterator[TriedRate]:
    """The winner's runs at one length of each rung, at every rate it was tried with there."""
    winners = [point for point in points if point.recipe == "winner"]
    swept = {(point.rung, point.length) for point in winners if point.lr_factor != 1}
    for point in winners:
        if (point.rung, point.length) in swept:
            yield TriedRate(
                rung=point.rung,
                params=point.params,
                length=point.length,
                seed=point.seed,
                factor=point.lr_factor,
                val_bpb=point.val_bpb,
            )


def _left_out(row: LadderRow) -> str:
    result = row.trial.result
    why = result.message if isinstance(result, TrialFailed) else row.verdict.explanation
    return (
        f"{row.trial.trial_id} ({row.recipe}, rung {row.rung}, {row.tokens:,} tokens, "
        f"lr {gpt(row.config).lr:.3g}) {row.verdict.outcome}: {why}"
    )
