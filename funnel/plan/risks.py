"""Judge a launch plan for the person who pays for it: what speaks against it, and its risks."""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from agent.menu.files import menu_of
from autoresearch.values import Frozen
from funnel.cost.measured import lead_sentence
from funnel.forecast.band import Forecast
from funnel.ladder.result import LadderResult
from funnel.plan.booking import Booking
from funnel.plan.case import LaunchCase
from funnel.plan.layout import USABLE
from funnel.plan.megatron_flags import EVAL_BATCHES, EVAL_STEPS, is_muon
from funnel.plan.projection import CODE_FILE, Projection
from funnel.plan.recipe import Recipe, batch_words, departures
from funnel.targets.shape import size_text

WIDE_APART = 2.0
"""Ratio of the rules' largest to smallest value above which their disagreement is a risk."""


LaunchVerdict: TypeAlias = Literal["GO", "NOT YET", "DO NOT LAUNCH"]
WEIGHTS: tuple[LaunchVerdict, ...] = ("GO", "NOT YET", "DO NOT LAUNCH")
"""The verdicts, the heaviest last."""


class LaunchReason(Frozen):
    """A reason of a plan's verdict."""

    verdict: LaunchVerdict
    """The verdict that it demands at least; ``GO`` for a risk that a launch must bear."""
    text: str


def risks(case: LaunchCase, winner: Recipe, booking: Booking) -> Iterator[str]:
    """Yield the risks, one sentence each, without the final period."""
    projection = winner.projection
    if projection.departures:
        yield (
            "the proxy does not have the target's shape, so the recipe is carried further than it "
            f"was tested: {'; '.join(projection.departures)}"
        )
    if words := batch_words(winner):
        yield words
    yield from _carried_over(projection)
    yield from (one.words for one in projection.bounded)
    if winner.precision == "bf16" and projection.source.precision == "fp32":
        yield "the proxies trained in fp32 and the run is planned in bf16"
    if booking.target.norm == "layernorm":
        yield "Megatron-LM's LayerNorm has a bias; the proxies' has none"
    if code := projection.source.code:
        yield (
            f"Megatron-LM's flags cannot carry {', '.join(code)}: the launch trains without it "
            f"until you patch Megatron-LM and test the patch against {CODE_FILE}"
        )
    yield from _doubts(case)
    if case.ranking_test is None or case.ranking_test.fidelity is None:
        yield (
            "how well short runs predict long ones was not measured; autoresearch stress "
            "--spread 6 does"
        )
    yield from _not_measured(winner, booking)


def forecast_risks(winner: Recipe, forecast: Forecast | None, no_forecast: str) -> Iterator[str]:
    """Yield the risks of the forecast.

    :param no_forecast: the reason that there is no forecast.
    """
    if forecast is None:
        yield f"there is no forecast, so verify cannot compare the run: {no_forecast}"
    else:
        if other := list(departures(winner)):
            yield (
                "the forecast's law is of rungs to which the recipe was carried otherwise than to "
                f"the target: {'; '.join(other)}"
            )
        if forecast.telling_point is None:
            yield forecast.worth


def _carried_over(projection: Projection) -> Iterator[str]:
    """Yield the risks of the rules that carry the rate, and of longer sequences."""
    yield (
        f"the learning rate is carried by {projection.lr_rule} over a width ratio of "
        f"{projection.target.d_model / projection.source.d_model:.3g}"
    )
    for disagreement in projection.disagreements:
        if disagreement.spread > WIDE_APART and disagreement.what != "lr_warmup":
            yield (
                f"the rules are {disagreement.spread:.3g} times apart on {disagreement.what}: "
                + ", ".join(f"{rule} {value:.4g}" for rule, value in disagreement.values.items())
                + f"; taken is {disagreement.taken} ({disagreement.why})"
            )
    yield from projection.notes
    if is_muon(projection.source):
        yield (
            "Megatron-LM's Muon needs the package emerging-optimizers, takes five Newton-Schulz "
            "steps where the proxies took four of Polar Express, and trains the norms' gains at "
            "the rate of the matrices"
        )
    if projection.source.seq_len < projection.target.seq_len:
        yield (
            f"the proxies trained on sequences of {projection.source.seq_len:,} tokens, and the "
            f"target's have {projection.target.seq_len:,}: nothing was tested over such distances"
        )


def _not_measured(winner: Recipe, booking: Booking) -> Iterator[str]:
    """Yield what is stated or computed because only a run on the rented GPUs can measure it."""
    speed = booking.compute.speed
    if speed.source != "measured":
        yield (
            f"a utilisation of {speed.mfu:.0%} is {speed.words()}: hours and cost go with its "
            "inverse; preflight.sh speed measures it, and handoff --measured takes it"
        )
    # Utilization omits the GPUs' time outside training. A forward pass alone is a third of a step.
    evaluation = EVAL_BATCHES / EVAL_STEPS / 3
    checkpoints, run = winner.checkpoints, winner.operations
    waiting = run.pause_sync_s / (3600 * checkpoints.every_hours)
    yield (
        f"hours and cost are of training alone: evaluation adds {evaluation:.1%}; interruptions "
        f"and saves take {run.disturbed.share_lost:.1%} of the time where saves are asynchronous; "
        f"where they are not, the GPUs wait {run.pause_sync_s:,.0f} s for each "
        f"{checkpoints.size_gb:,.0f} GB, {waiting:.1%} of the time"
    )
    if run.spot:
        yield (
            "spot GPUs: how often they are taken back is assumed, and how long they stay away is "
            "not in hours or cost"
        )
    yield (
        "the data are not looked at here: where DATA_PATH has fewer than "
        f"{size_text(winner.schedule.tokens)} tokens Megatron-LM repeats them, and only its log "
        "says so (total number of epochs); preflight.sh data counts them"
    )
    known = (
        "computed, not measured" if winner.memory.measured == 1 else "scaled by what was measured"
    )
    yield (
        f"memory is {known}, and {1 - USABLE:.0%} of the GPU is kept free for what the formula "
        "leaves out"
    )


def _doubts(case: LaunchCase) -> Iterator[str]:
    if len(case.candidates) > 1:
        best, second = (candidate.standing for candidate in case.candidates[:2])
        gap = second.objective - best.objective
        if best.delta_vs_baseline is not None and second.delta_vs_baseline is not None:
            # Finalists of several sessions may have run on different seeds. Differences from the
            # baseline are on shared ones.
            gap = second.delta_vs_baseline - best.delta_vs_baseline
        if best.stderr is None or second.stderr is None:
            yield f"the winner leads the runner-up by {gap:.4f} bits per byte, noise unknown"
        elif gap < 2 * (best.stderr**2 + second.stderr**2) ** 0.5:
            yield (
                f"the winner leads the runner-up by {gap:.4f} bits per byte, less than two "
                "standard errors: neither is shown to be better"
            )
    else:
        yield (
            "there is no runner-up: one finalist is left; autoresearch stress --top 3 looks for "
            "more"
        )


def against(case: LaunchCase, ladder: LadderResult | None) -> Iterator[LaunchReason]:
    """Yield what speaks against a launch now, the heaviest first."""
    best, search = case.candidates[0], case.search
    if best.config == menu_of(case.row).baseline:
        yield LaunchReason(
            verdict="DO NOT LAUNCH", text="the winner is the baseline: nothing was found"
        )
    elif search.kept == 0:
        text = f"the search kept nothing in {search.iterations} iterations"
        yield LaunchReason(verdict="DO NOT LAUNCH", text=text)
    lead = best.standing.delta_vs_baseline
    if lead is not None and lead >= 0:
        text = f"in the long runs the winner is no better than the baseline ({lead:+.4f})"
        yield LaunchReason(verdict="DO NOT LAUNCH", text=text)
    gain = case.confirmed[1].headline if case.confirmed else None
    if gain is not None and gain.lo > 0:
        text = f"on fresh runs the winner is worse than the baseline: {case.confirmed_words}"
        yield LaunchReason(verdict="DO NOT LAUNCH", text=text)
    elif case.confirmed is None or not case.confirmed[1].stands:
        text = f"the winner's gain is not confirmed on fresh runs: {case.confirmed_words}"
        yield LaunchReason(verdict="NOT YET", text=text)
    yield from (
        LaunchReason(verdict="NOT YET", text=text) for text in _open_questions(case, ladder)
    )


def _open_questions(case: LaunchCase, ladder: LadderResult | None) -> Iterator[str]:
    standing, test = case.candidates[0].standing, case.ranking_test
    lead, doubt = standing.delta_vs_baseline, standing.delta_stderr
    if lead is None or doubt is None:
        yield (
            "how sure the winner's lead over the baseline is in long runs was not measured; run "
            "autoresearch stress --seeds 2, with the baseline"
        )
    elif 0 > lead > -2 * doubt:
        yield (
            f"in the long runs the winner is at {lead:+.4f} (se {doubt:.4f}) against the baseline, "
            "less than two standard errors; run autoresearch stress --seeds 4"
        )
    if ladder is None or ladder.lead is None:
        yield "whether the lead lasts with size was not measured; run autoresearch ladder"
    else:
        if ladder.missing:
            yield f"the ladder still lacks {ladder.missing} runs; run autoresearch ladder"
        if ladder.lead.trend == "shrinks" or not ladder.lead.stands:
            yield lead_sentence(ladder.lead)
        if ladder.predicted and ladder.predicted.missed is not None:
            yield (
                "the ladder's prediction of its own largest rung was "
                f"{ladder.predicted.missed:+.1%} off and outside its interval, so larger sizes "
                "cannot be predicted from it; run autoresearch ladder --hours with more"
            )
    if test is not None and test.fidelity is not None and test.fidelity.kendall.lo <= 0:
        yield (
            "the ranking by short runs cannot be distinguished from chance (Kendall "
            f"{test.fidelity.kendall.value:.2f}, n = {test.n}): better recipes may have been left "
            "out; run autoresearch stress --first 16 --spread 8"
        )


def verdict_of(reasons: Sequence[LaunchReason]) -> LaunchVerdict:
    """Return the verdict: that of the heaviest reason."""
    return max((one.verdict for one in reasons), key=WEIGHTS.index, default="GO")
