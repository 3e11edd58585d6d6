"""Collect a journal's ladders, and turn their runs into measurements at each size and length."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Self, TypeAlias

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt
from funnel.forecast.scaling_law import FinishedRun, ScalingFit, fit_scaling_law
from funnel.forecast.schedule import RungRun, ScheduleShape
from funnel.ladder.lead import LeadPoint
from funnel.ladder.shapes import training_flops
from trainer.schema import Config, CurvePoint, TrialFailed, gpt
from trajectory.rows import (
    LadderPlanRow,
    LadderPredictionRow,
    LadderRow,
    Recipe,
    Row,
    StressOutcome,
)

RunKey: TypeAlias = tuple[str, int, int]
"""The key of a run: config_hash, steps, seed. Two runs with the same key are the same run."""


@dataclass(slots=True)
class LadderLog:
    """Plans, predictions and runs of ladders."""

    plans: list[LadderPlanRow] = field(default_factory=list)
    predictions: list[tuple[LadderPredictionRow, int]] = field(default_factory=list)
    """Predictions, each with the number of runs in the journal before it."""
    runs: list[LadderRow] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Collect from a journal's rows."""
        log = cls()
        for row in rows:
            log.add(row)
        return log

    def add(self, row: Row) -> None:
        """Add one row, in the journal's order."""
        if isinstance(row, LadderPlanRow):
            self.plans.append(row)
        elif isinstance(row, LadderPredictionRow):
            self.predictions.append((row, len(self.runs)))
        elif isinstance(row, LadderRow):
            self.runs.append(row)

    def done(self, plan: LadderPlanRow) -> dict[tuple[int, int], LadderRow]:
        """Return the finished runs of this plan, by their place in the plan and their seed.

        It does not matter for which plan a run was made. Of a run made twice, the newest counts.
        """
        wanted = {
            key: (number, seed)
            for number, run in enumerate(plan.runs)
            for seed in run.seeds
            for key in [key_of(run.config, run.steps, seed)]
        }
        made = (((row.config_hash, row.steps, row.trial.seed), row) for row in self.runs)
        return {wanted[key]: row for key, row in made if key in wanted}

    def pending(self, plan: LadderPlanRow) -> int:
        """Return the number of runs of a plan that have no row."""
        return sum(len(run.seeds) for run in plan.runs) - len(self.done(plan))

    def prediction_of(
        self, plan: LadderPlanRow
    ) -> tuple[LadderPredictionRow, Sequence[LadderRow]] | None:
        """Return the prediction made for this plan, and the runs in the journal before it; None if
        there is no prediction."""
        for row, before in self.predictions:
            if row.plan_sha256 == plan.sha256:
                return row, self.runs[:before]
        return None


def key_of(config: Config, steps: int, seed: int) -> RunKey:
    """Return the key of a run."""
    return config.config_hash, steps, seed


USABLE: frozenset[StressOutcome] = frozenset({"survives", "spikes", "plateaus"})
"""Outcomes of a run that still measure its size and length."""


class LadderPoint(Frozen):
    """One run that ended with a measurement."""

    recipe: Recipe
    rung: PositiveInt
    params: PositiveInt
    """Parameters without the tables of tokens and positions and an untied head."""
    length: PositiveInt
    """Tokens that the ladder asks for, the same for both recipes."""
    tokens: PositiveInt
    steps: PositiveInt
    flops: Positive
    """FLOPs of training, counted by :mod:`trainer.machine.flops`."""
    seed: NonNegativeInt
    val_bpb: Positive
    config: Config
    trial_id: str

    @property
    def finished(self) -> FinishedRun:
        """The run as input for a scaling law, in bits per byte."""
        return FinishedRun(params=self.params, tokens=self.tokens, loss=self.val_bpb)


def points_of(
    log: LadderLog, plan: LadderPlanRow, vocab_size: int
) -> tuple[list[LadderPoint], list[str]]:
    """Return a plan's measurements in its order, and the runs without a measurement, in words."""
    found: list[LadderPoint] = []
    left_out: list[str] = []
    done = log.done(plan)
    for number, run in enumerate(plan.runs):
        for seed in run.seeds:
            row = done.get((number, seed))
            if (
                row is None or run.lr_factor != 1
            ):  # an older ladder's, at a learning rate of its own
                continue
            if row.trial.objective is None or row.verdict.outcome not in USABLE:
                result, config = row.trial.result, gpt(row.config)
                why = result.message if isinstance(result, TrialFailed) else row.verdict.explanation
                left_out.append(
                    f"{row.trial.trial_id} ({row.recipe}, rung {row.rung}, {row.tokens:,} tokens, "
                    f"lr {config.lr:.3g}) {row.verdict.outcome}: {why}"
                )
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
                    val_bpb=row.trial.objective,
                    config=run.config,
                    trial_id=row.trial.trial_id,
                )
            )
    return found, left_out


def of_recipe(points: Iterable[LadderPoint], recipe: Recipe) -> list[LadderPoint]:
    """Return a recipe's runs."""
    return [point for point in points if point.recipe == recipe]


def law_of(points: Sequence[LadderPoint], seed: int) -> ScalingFit | str:
    """Return the law of one recipe's runs, or the reason that there is none."""
    try:
        return fit_scaling_law([point.finished for point in points], seed=seed)
    except HandoffError as error:
        return str(error)


def lead_points(points: Sequence[LadderPoint]) -> Iterator[LeadPoint]:
    """Yield the sizes and lengths at which both recipes have runs on common seeds."""
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


def rung_runs(
    rungs: Iterable[LadderPoint], curve_of: Callable[[str], Sequence[CurvePoint]]
) -> tuple[RungRun, ...]:
    """Return the rungs whose curve still exists, as the runs that a forecast is made from.

    :param rungs: rungs of one recipe, at the rate that the rules give.
    :param curve_of: function that returns a trial's curve; empty if it left none.
    """
    return tuple(
        RungRun(
            params=float(rung.params),
            tokens=float(rung.steps * rung.config.tokens_per_step),
            schedule=schedule_of(rung.config, rung.steps, rung.config.lr_warmup),
            curve=tuple(curve),
        )
        for rung in rungs
        if (curve := curve_of(rung.trial_id))
    )


def schedule_of(config: Config, steps: int, warmup_steps: int) -> ScheduleShape:
    """Return the config's schedule over this many steps."""
    return ScheduleShape(
        steps=steps,
        warmup_steps=min(warmup_steps, steps),
        kind=config.schedule,
        decay_share=config.decay_share,
        lr_min_ratio=config.lr_min_ratio,
    )
