"""The launch plan: what is launched, on what, for how much, and how its first day must look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.funnel.bill import Bill
from agent.funnel.booking import Booking, make_booking, pipeline_bubble
from agent.funnel.checks import Check, preflight_checks
from agent.funnel.departures import TOLERANCE
from agent.funnel.dossier import Dossier
from agent.funnel.fall import fit_fall
from agent.funnel.forecast import Forecast, make_forecast
from agent.funnel.gpus import hourly_usd
from agent.funnel.layout import USABLE, Cluster
from agent.funnel.projection import LrRule
from agent.funnel.rates import Rates
from agent.funnel.recipe import Recipe, batch_words, make_recipes
from agent.funnel.shape import ParameterCount
from agent.funnel.sides import PlannedSides, Text
from agent.funnel.target import TargetArchitecture
from agent.funnel.telling import stalled_bpb, telling_point
from agent.funnel.usage import SECONDS_PER_HOUR, measured_usage
from agent.wording import scalar_text
from trainer.spec import Frozen, NonNegative


class Money(Frozen):
    """What the search cost, what the run will, and what a wrong pick would."""

    search_hours: NonNegative
    """Of the desk machine: baseline, loop and stress test, measured."""
    search_kwh: NonNegative
    search_usd: NonNegative
    """Its cost of use, see :class:`~agent.funnel.bill.Bill`."""
    run_usd: NonNegative
    day_usd: NonNegative
    wrong_pick_rate: NonNegative
    """As the rates suppose it."""
    expected_loss_usd: NonNegative
    """``wrong_pick_rate × run_usd``: of booking without a search."""


class Wishes(Frozen):
    """What the person asked for."""

    mfu: float
    lr_rule: LrRule
    hourly_usd: float | None
    """None: by the rates."""
    batch: int | None
    """Sequences a step; None: as many tokens as the proxy's."""
    bytes_per_token: float | None
    """Of the cloud's tokenizer, where it is known."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """All that ``handoff/`` says."""

    dossier: Dossier
    wishes: Wishes
    booking: Booking
    recipes: tuple[Recipe, ...]
    """The winner first."""
    forecast: Forecast
    money: Money
    checks: tuple[Check, ...]
    risks: tuple[str, ...]

    @property
    def winner(self) -> Recipe:
        return self.recipes[0]


def make_handoff(
    dossier: Dossier, target: TargetArchitecture, cluster: Cluster, wishes: Wishes, rates: Rates
) -> Handoff:
    """The launch plan of a campaign's finalists.

    :raises HandoffError: where no layout fits, or the curves are too short for a forecast.
    :raises TargetError: where a finalist cannot be carried to the target.
    """
    booking = make_booking(
        target,
        cluster,
        mfu=wishes.mfu,
        gpu_hourly_usd=hourly_usd(cluster.gpu, rates, wishes.hourly_usd),
    )
    recipes = make_recipes(dossier.candidates, booking, lr_rule=wishes.lr_rule, batch=wishes.batch)
    forecast = _forecast(dossier, recipes[0], booking, wishes)
    return Handoff(
        dossier=dossier,
        wishes=wishes,
        booking=booking,
        recipes=recipes,
        forecast=forecast,
        money=_money(dossier, booking, rates),
        checks=tuple(preflight_checks(recipes[0], booking, forecast)),
        risks=tuple(_risks(dossier, recipes, booking, forecast)),
    )


def _forecast(dossier: Dossier, winner: Recipe, booking: Booking, wishes: Wishes) -> Forecast:
    candidate = dossier.candidates[0]
    proxy, target, corpus = candidate.config, booking.target, dossier.row.corpus
    band = fit_fall(
        dossier.curves(candidate),
        warmup=proxy.lr_warmup,
        run_sd=dossier.run_sd,
        seed=dossier.row.seed,
    )
    return make_forecast(
        band,
        PlannedSides(
            target=target.name,
            corpus=corpus.name,
            proxy_text=Text(
                tokenizer=corpus.tokenizer,
                vocab_size=corpus.vocab_size,
                bytes_per_token=corpus.train_bytes / corpus.train_tokens,
            ),
            target_text=Text(
                tokenizer="the cloud's",
                vocab_size=target.vocab_size,
                bytes_per_token=wishes.bytes_per_token,
            ),
            proxy_params=ParameterCount.of(proxy, corpus.vocab_size).blocks,
            target_params=target.parameter_count.blocks,
            proxy_tokens_per_step=proxy.tokens_per_step,
            tokens_per_step=winner.schedule.tokens_per_step,
            seq_len=target.seq_len,
            warmup_steps=winner.schedule.warmup_steps,
            first_day_tokens=booking.compute.first_day_tokens,
            total_tokens=winner.schedule.tokens,
        ),
    )


def _money(dossier: Dossier, booking: Booking, rates: Rates) -> Money:
    usage = measured_usage(dossier.directory, rates)
    run_usd = booking.compute.cost_usd
    return Money(
        search_hours=usage.seconds / SECONDS_PER_HOUR,
        search_kwh=usage.kwh,
        search_usd=Bill.of(rates, usage.seconds, usage.kwh).desk_total,
        run_usd=run_usd,
        day_usd=booking.compute.day_usd,
        wrong_pick_rate=rates.wrong_pick_rate,
        expected_loss_usd=rates.wrong_pick_rate * run_usd,
    )


def _risks(
    dossier: Dossier, recipes: Sequence[Recipe], booking: Booking, forecast: Forecast
) -> Iterator[str]:
    winner = recipes[0]
    projection = winner.projection
    if projection.departures:
        yield (
            "the proxy does not have the target's shape, so the recipe is carried further than it "
            f"was tested: {'; '.join(projection.departures)}"
        )
    if words := batch_words(winner):
        yield words
    yield (
        f"the learning rate is carried by {projection.lr_rule} over a width ratio of "
        f"{projection.target.d_model / projection.source.d_model:.3g}; the rules say "
        + ", ".join(f"{rule} {scalar_text(lr)}" for rule, lr in projection.lr_by_rule.items())
    )
    if winner.precision == "bf16" and projection.source.precision == "fp32":
        yield "the proxies trained in fp32 and the run is planned in bf16"
    if booking.target.norm == "layernorm":
        yield "Megatron-LM's LayerNorm has a bias that the proxies' had not"
    if booking.target.positions == projection.source.positions == "rotary":
        yield (
            "the rotary base is 10,000, as the proxies trained with; for long sequences larger "
            "ones are in use, and none was tested"
        )
    yield from _doubts(dossier, forecast)
    bubble = pipeline_bubble(winner.layout)
    if bubble > 0:
        yield (
            f"{bubble:.0%} of a step is the pipeline's bubble; the stated utilisation must allow "
            "for it"
        )
    yield (
        f"a utilisation of {booking.compute.mfu:.0%} is stated, not measured: hours and cost go "
        "with its inverse"
    )
    yield (
        f"memory is computed, not measured, and {1 - USABLE:.0%} of the GPU is kept free for what "
        "the formula leaves out"
    )


def _doubts(dossier: Dossier, forecast: Forecast) -> Iterator[str]:
    if len(dossier.candidates) > 1:
        best, second = (candidate.standing for candidate in dossier.candidates[:2])
        gap = second.val_bpb - best.val_bpb
        if best.stderr is None or second.stderr is None:
            yield f"the winner leads the runner-up by {gap:.4f} bits per byte, noise unknown"
        elif gap < 2 * (best.stderr**2 + second.stderr**2) ** 0.5:
            yield (
                f"the winner leads the runner-up by {gap:.4f} bits per byte, less than two "
                "standard errors: they are as good as each other"
            )
    else:
        yield (
            "there is no runner-up: one finalist is left; autoresearch stress --top 3 looks for "
            "more"
        )
    yield from _doubts_of_the_search(dossier)
    if telling_point(forecast) is None:
        yield (
            "the forecast's band is too wide to confirm anything: a run that stopped learning "
            f"where it begins, at {stalled_bpb(forecast):.3f} bits per byte, is within it to its "
            f"end ({forecast.points[-1].high_bpb:.3f} and {TOLERANCE:.0%}), so verify can call the "
            "run broken, and never within"
        )
    beyond = forecast.points[-1].tokens / forecast.fall.to_tokens
    if beyond > 10:
        yield (
            f"the forecast's end is {beyond:,.3g} times as many tokens as the law was seen over: "
            "the band is wide, and a run within it is not thereby good"
        )


def _doubts_of_the_search(dossier: Dossier) -> Iterator[str]:
    """Whether the winner is better than what it was searched from, and the ranking than chance."""
    best = dossier.candidates[0].standing
    if best.stderr is None:
        yield "the noise of long runs is unknown: stress them with --seeds 2"
    lead, doubt = best.delta_vs_baseline, best.delta_stderr
    if lead is not None and (lead >= 0 or (doubt is not None and -lead < 2 * doubt)):
        yield (
            f"against the baseline's long runs the winner is at {lead:+.4f} bits per byte"
            f"{'' if doubt is None else f' ± {doubt:.4f}'}: it is not shown to be better"
        )
    test = dossier.ranking_test
    if test is None or test.fidelity is None:
        yield (
            "how well short runs predict long ones was not measured; autoresearch stress "
            "--spread 6 does"
        )
    elif test.fidelity.kendall.lo <= 0:
        yield (
            f"the ranking by short runs cannot be told from chance (Kendall "
            f"{test.fidelity.kendall.value:.2f}, n = {test.n}): better recipes may have been culled"
        )
