"""Make the launch plan: recipes, GPUs, cost, and the forecast of the first day."""

from dataclasses import dataclass

from agent.menu.files import menu_of
from autoresearch.errors import HandoffError
from autoresearch.values import Frozen
from funnel.attribution.carried import CarriedChange, carried_changes, shape_of_winner
from funnel.attribution.result import AttributionResult, read_attribution
from funnel.cost.bill import Bill, CloudRun, make_bill
from funnel.cost.gpus import hourly_usd
from funnel.cost.measured import SearchEvidence, measured_usage
from funnel.cost.rates import Rates
from funnel.forecast.band import BothRuns, Forecast, make_forecast
from funnel.ladder.points import of_recipe, rung_runs, schedule_of
from funnel.ladder.result import LadderResult
from funnel.plan.booking import DAY_S, Booking, Terms, make_booking
from funnel.plan.case import LaunchCase
from funnel.plan.checks import PreflightCheck, preflight_checks
from funnel.plan.layout import Cluster
from funnel.plan.megatron_flags import launch_precision
from funnel.plan.recipe import Recipe, carried_recipe, departures, make_recipes
from funnel.plan.risks import (
    LaunchReason,
    LaunchVerdict,
    against,
    forecast_risks,
    risks,
    verdict_of,
)
from funnel.plan.utilisation import MeasuredSpeed, utilisation
from funnel.targets.architecture import TargetArchitecture


class Wishes(Frozen):
    """Options that the user chose."""

    mfu: float | None
    """Utilization; None: computed from the layout, or measured by the preflight."""
    batch: int | None
    """Sequences per step; None: chosen by the batch's rule."""
    bytes_per_token: float | None
    """Mean bytes per token of the cloud's tokenizer; None if unknown."""
    terms: Terms = Terms()
    measured: MeasuredSpeed | None = None
    """Speed that the preflight measured on the rented GPUs; None if it did not run."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """The contents of ``handoff/``."""

    case: LaunchCase
    wishes: Wishes
    booking: Booking
    recipes: tuple[Recipe, ...]
    """Recipes, the winner's first."""
    run: BothRuns
    """The run, as `verify` needs it."""
    forecast: Forecast | None
    """None if no ladder of the recipe gives one."""
    money: Bill
    checks: tuple[PreflightCheck, ...]
    reasons: tuple[LaunchReason, ...]
    """What speaks against the launch, the heaviest first, then its risks."""
    changes: tuple[CarriedChange, ...]
    """The search's changes, and how each was carried."""
    attribution: AttributionResult | None
    """Result of reverting the winner's changes one by one; None if it was not measured."""

    @property
    def winner(self) -> Recipe:
        return self.recipes[0]

    @property
    def verdict(self) -> LaunchVerdict:
        return verdict_of(self.reasons)


def make_handoff(
    case: LaunchCase,
    target: TargetArchitecture,
    cluster: Cluster,
    wishes: Wishes,
    rates: Rates,
    *,
    ladder: LadderResult | None = None,
) -> Handoff:
    """Make the launch plan of a campaign's finalists, at the target's size in the winner's shape.

    :param ladder: the winner's ladder; None if the campaign has none. Its runs make the forecast,
        and its lead enters the bill.
    :raises HandoffError: if no layout fits.
    :raises TargetError: if a finalist cannot be carried to the target.
    """
    best, menu = case.candidates[0].config, menu_of(case.row)
    measured = read_attribution(case.directory, best)
    shape = shape_of_winner(best, target, menu, case.row.text.vocab_size, measured)
    booking = _booking(case, shape.target, cluster, wishes, rates)
    recipes = make_recipes(case.candidates, booking, wishes.batch)
    run = _planned_run(case, recipes[0], booking, wishes.bytes_per_token)
    forecast, no_forecast = None, ""
    try:
        forecast = _forecast(case, recipes[0], run, ladder)
    except HandoffError as error:
        no_forecast = str(error)
    texts = *risks(case, recipes[0], booking), *forecast_risks(recipes[0], forecast, no_forecast)
    borne = [LaunchReason(verdict="GO", text=text) for text in texts]
    carried = {one.name: (one.target, one.rule) for one in recipes[0].projection.carried}
    return Handoff(
        case=case,
        wishes=wishes,
        booking=booking,
        recipes=recipes,
        run=run,
        forecast=forecast,
        money=_money(case, booking, recipes[0], rates, ladder),
        checks=tuple(preflight_checks(recipes[0], booking, forecast)),
        reasons=(*against(case, ladder), *borne),
        changes=tuple(carried_changes(best, menu, shape, carried, measured)),
        attribution=measured,
    )


def _booking(
    case: LaunchCase,
    target: TargetArchitecture,
    cluster: Cluster,
    wishes: Wishes,
    rates: Rates,
) -> Booking:
    """Return the booking at the speed of the winner's layout."""
    projection, _, memory, _ = carried_recipe(
        case.candidates[0], target, cluster, wishes.batch, wishes.measured
    )
    fp8 = launch_precision(projection) == "fp8"
    speed = wishes.mfu or utilisation(
        target, memory.layout, cluster, fp8=fp8, measured=wishes.measured
    )
    return make_booking(
        target,
        cluster,
        mfu=speed,
        gpu_hourly_usd=hourly_usd(cluster.gpu, rates, firm=not wishes.terms.spot),
        terms=wishes.terms,
        measured=wishes.measured,
    )


def _planned_run(
    case: LaunchCase, winner: Recipe, booking: Booking, bytes_per_token: float | None
) -> BothRuns:
    """Return what `verify` needs to know of the run."""
    target, corpus, steps = booking.target, case.row.text, winner.schedule
    own, is_same = corpus.train_bytes / corpus.train_tokens, target.vocab_size == corpus.vocab_size
    return BothRuns(
        target=target.name,
        corpus=corpus.name,
        corpus_bytes_per_token=own,
        bytes_per_token=bytes_per_token or target.bytes_per_token or (own if is_same else None),
        target_params=target.parameter_count.blocks,
        tokens_per_step=steps.tokens_per_step,
        seq_len=target.seq_len,
        first_day_tokens=max(1, round(booking.compute.tokens_per_s * DAY_S)),
        schedule=schedule_of(case.candidates[0].config, steps.steps, steps.warmup_steps),
    )


def _forecast(
    case: LaunchCase, winner: Recipe, run: BothRuns, ladder: LadderResult | None
) -> Forecast:
    """Return the forecast from the ladder's rungs.

    :raises HandoffError: if there is no ladder of the recipe, or it gives no law.
    """
    rungs = () if ladder is None else rung_runs(of_recipe(ladder.points, "winner"), case.curve)
    if ladder is None or not rungs:
        raise HandoffError(
            "no ladder of this recipe has left curves; run autoresearch ladder, then handoff again"
        )
    return make_forecast(
        rungs,
        run,
        seed=case.row.seed,
        missed=ladder.predicted.missed if ladder.predicted else None,
        other_rules=tuple(departures(winner)),
    )


def _money(
    case: LaunchCase,
    booking: Booking,
    winner: Recipe,
    rates: Rates,
    ladder: LadderResult | None,
) -> Bill:
    cluster = booking.cluster
    run = CloudRun(
        source="this plan",
        gpu=cluster.gpu.name,
        gpus=cluster.world_size,
        gpu_hourly_usd=booking.compute.gpu_hourly_usd,
        hours=booking.compute.hours,
        preemption=winner.operations.disturbed,
    )
    measured = SearchEvidence.of(case.ranking_test, ladder)
    return make_bill(rates, measured_usage(case.directory, rates), run, measured)
