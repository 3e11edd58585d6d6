"""Read the result of a campaign's ladder from its journal."""

from pathlib import Path

from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, NonNegativeInt
from funnel.forecast.scaling_law import ScalingFit
from funnel.ladder.lead import Lead, fit_lead
from funnel.ladder.points import (
    LadderLog,
    LadderPoint,
    law_of,
    lead_points,
    of_recipe,
    pending,
    points_of,
)
from funnel.ladder.prediction import PredictedRung, read_prediction
from trainer.spec import Config
from trajectory.journal import read_rows
from trajectory.ladder_plan import LadderPlanRow
from trajectory.rows import CampaignRow


class LadderResult(Frozen):
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
    plan = next((plan for plan in newest if not pending(plan, log.done(plan))), newest[0])
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
        missing=len(pending(plan, log.done(plan))),
        winner=None if isinstance(winner, str) else winner,
        baseline=None if isinstance(baseline, str) else baseline,
        no_law=winner if isinstance(winner, str) else None,
        lead=fit_lead(list(lead_points(points))),
        predicted=prediction,
    )
