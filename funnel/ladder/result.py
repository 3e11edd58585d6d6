"""Read a ladder's result from its journal, and predict its largest rung before that is trained.

The prediction is a row of the journal with the SHA-256 of its content. It is written and fsynced
before the first trial of the largest rung has a spec, and the rows of those trials name the hash.
Reading a ladder checks all of this. The file alone cannot reveal an edit that changes the
prediction, the hash and the rows that name it together; the printed hash can.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autoresearch.errors import JournalError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, NonNegativeInt, Positive
from funnel.forecast.scaling_law import ScalingFit
from funnel.ladder.lead import Lead, fit_lead
from funnel.ladder.points import (
    LadderLog,
    LadderPoint,
    key_of,
    law_of,
    lead_points,
    of_recipe,
    points_of,
)
from trainer.schema import Config, gpt
from trajectory.journal import read_rows
from trajectory.rows import (
    CampaignRow,
    LadderPlanRow,
    LadderPredictionRow,
    LadderRow,
    LadderRun,
    PredictedLoss,
)


class Outcome(PredictedLoss):
    """One recipe's prediction and its outcome."""

    seen_bpb: Positive | None
    """None while the rung is not trained, or if it ended without a measurement."""

    @property
    def error(self) -> float | None:
        """The relative error; positive if the prediction was too high."""
        return None if self.seen_bpb is None else self.middle / self.seen_bpb - 1

    @property
    def within(self) -> bool | None:
        """Whether the observed value lies in the interval."""
        return None if self.seen_bpb is None else self.low <= self.seen_bpb <= self.high


class PredictedRung(Frozen):
    """The prediction of a ladder's largest rung."""

    sha256: str
    at: str
    outcomes: tuple[Outcome, ...]

    @property
    def missed(self) -> float | None:
        """The largest relative error of the predictions outside their intervals; None if none
        was."""
        errors = [one.error for one in self.outcomes if one.error and one.within is False]
        return max(errors, key=abs, default=None)


def largest_runs(plan: LadderPlanRow) -> list[LadderRun]:
    """Return the runs that are predicted before they are made, the winner's first."""
    return [run for run in plan.runs if run.rung == plan.largest]


def make_prediction(
    log: LadderLog, plan: LadderPlanRow, *, vocab_size: int, seed: int, at: str
) -> LadderPredictionRow | str:
    """Return the smaller rungs' prediction for the largest, or the reason that there is none.

    :param at: the current time.
    """
    if any(row.rung == plan.largest for row in log.done(plan).values()):
        return "the largest rung was trained before, for another plan, and cannot be predicted now"
    known, _ = points_of(log, plan, vocab_size)
    points = [point for point in known if point.rung < plan.largest]
    predicted: list[PredictedLoss] = []
    for run in largest_runs(plan):
        law = law_of(of_recipe(points, run.recipe), seed)
        if isinstance(law, str):
            return f"the {run.recipe}'s largest rung cannot be predicted: {law}"
        low, middle, high = (float(np.asarray(end)) for end in law.predict(run.params, run.tokens))
        predicted.append(
            PredictedLoss(
                recipe=run.recipe,
                params=run.params,
                tokens=run.tokens,
                low=low,
                middle=middle,
                high=high,
            )
        )
    row = LadderPredictionRow(
        at=at,
        plan_sha256=plan.sha256,
        predicted=tuple(predicted),
        trial_ids=tuple(point.trial_id for point in points),
        sha256="",
    )
    return row.model_copy(update={"sha256": row.sealed})


def read_prediction(
    log: LadderLog, plan: LadderPlanRow, points: Sequence[LadderPoint]
) -> PredictedRung | None:
    """Return the prediction made for this plan beside its outcome; None if there is no prediction.

    :raises JournalError: if it was changed since, or was not written before the runs.
    """
    made = log.prediction_of(plan)
    if made is None:
        is_whole = not any(
            run.plan_sha256 == plan.sha256 and run.prediction_sha256 is not None for run in log.runs
        )
    else:
        is_whole = _is_whole(log, plan, *made)
    if not is_whole:
        raise JournalError(
            "the prediction of the ladder's largest rung was changed, moved or removed after it "
            "was written; restore trajectory.jsonl from a copy, or do not believe this ladder"
        )
    if made is None:
        return None
    row, _ = made
    seen = {point.recipe: point.val_bpb for point in points if point.rung == plan.largest}
    outcomes = (
        Outcome(**predicted.model_dump(), seen_bpb=seen.get(predicted.recipe))
        for predicted in row.predicted
    )
    return PredictedRung(sha256=row.sha256, at=row.at, outcomes=tuple(outcomes))


def _is_whole(
    log: LadderLog, plan: LadderPlanRow, row: LadderPredictionRow, before: Sequence[LadderRow]
) -> bool:
    """Return whether a prediction is as it was written, before the runs that it predicts.

    :param before: the runs in the journal before it.
    """
    largest = largest_runs(plan)
    wanted = {key_of(run.config, run.steps, seed) for run in largest for seed in run.seeds}
    return (
        row.sealed == row.sha256
        and [(p.recipe, p.params, p.tokens) for p in row.predicted]
        == [(run.recipe, run.params, run.tokens) for run in largest]
        and all(key_of(gpt(run.config), run.steps, run.trial.seed) not in wanted for run in before)
        and set(row.trial_ids) <= {run.trial.trial_id for run in before}
        and all(
            run.prediction_sha256 == row.sha256
            for run in log.runs[len(before) :]
            if run.plan_sha256 == plan.sha256 and run.rung == plan.largest
        )
    )


class LadderResult(Frozen, arbitrary_types_allowed=True):
    """A ladder's result, as far as it is trained."""

    plan: LadderPlanRow
    points: tuple[LadderPoint, ...]
    left_out: tuple[str, ...]
    """Runs that ended without a measurement, in words."""
    missing: NonNegativeInt
    """Number of runs still to be made."""
    winner: ScalingFit | None
    """Scaling law of the winner's runs, in bits per byte; None if there are too few."""
    baseline: ScalingFit | None
    """Scaling law of the baseline's runs; None also if the winner is the baseline."""
    no_law: str | None
    """The reason that the winner has no law."""
    lead: Lead | None
    """None if there are too few pairs, or no baseline beside the winner."""
    predicted: PredictedRung | None


def read_ladder(directory: Path, *, of: tuple[Config, int] | None = None) -> LadderResult | None:
    """Return the latest complete ladder of the campaign in this directory, else the latest; None if
    there is none.

    :param of: a config, and the steps of the schedule that it was found with. Ladders of another
        config or schedule are left out.
    :raises JournalError: if the journal is damaged, or a prediction in it was changed.
    """
    rows = read_rows(directory / JOURNAL_FILE)
    first = next(rows, None)
    if not isinstance(first, CampaignRow):
        return None
    log = LadderLog.of(rows)
    newest = [
        plan for plan in reversed(log.plans) if of is None or of == (plan.winner, plan.source_steps)
    ]
    if not newest or not log.runs:
        return None
    plan = next((plan for plan in newest if not log.pending(plan)), newest[0])
    return ladder_result(log, plan, vocab_size=first.text.vocab_size, seed=first.seed)


def ladder_result(
    log: LadderLog, plan: LadderPlanRow, *, vocab_size: int, seed: int
) -> LadderResult:
    """Return the result of one plan's runs.

    :raises JournalError: if its prediction was changed.
    """
    points, left_out = points_of(log, plan, vocab_size)
    prediction = read_prediction(log, plan, points)
    winner = law_of(of_recipe(points, "winner"), seed)
    baseline = law_of(of_recipe(points, "baseline"), seed)
    return LadderResult(
        plan=plan,
        points=tuple(points),
        left_out=tuple(left_out),
        missing=log.pending(plan),
        winner=None if isinstance(winner, str) else winner,
        baseline=None if isinstance(baseline, str) else baseline,
        no_law=winner if isinstance(winner, str) else None,
        lead=fit_lead(list(lead_points(points))),
        predicted=prediction,
    )
