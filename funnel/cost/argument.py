"""Compute the argument for searching before booking: the bill, figure by figure.

With S the cost of the search, F that of the final run and p the chance that a run booked blind is
wasted, the savings are p × F − S. This assumes that the search leaves no such chance. If a chance q
remains, the savings are (p − q) × F − S. The search pays if p exceeds ``S / F``, or if it removes
more than ``S / (p × F)`` of the chance.
"""

from collections.abc import Iterator

from funnel.cost.bill import SUPPOSED_RUN, Bill, CloudRun
from funnel.cost.figures import CostFigure, CostSection, Unit, View, ratio
from funnel.cost.measured import SUPPOSED, SearchUsage
from funnel.cost.rates import GPUS_PER_NODE, Rates

PUBLISHED_FINAL_HOURS = 168
PUBLISHED_TARGET_SCALE = 60
SENSITIVITY = (0.01, 0.05, 0.10, 0.25, 0.50)


def argument_view(rates: Rates, usage: SearchUsage, bill: Bill) -> View:
    """Return the view of what one search and its run cost, and what the search is worth."""
    n, seconds = usage.iterations, usage.iter_s
    scale = "_60x" if rates.target_scale == PUBLISHED_TARGET_SCALE else ""
    keys = ("h100_single", "h100_8gpu_node", f"h100_8gpu_node_target_scale{scale}")
    h200 = seconds / 3600 / rates.h100_speedup * rates.h200_hourly_usd
    at_h200 = f"the same at ${rates.h200_hourly_usd:g}/h"
    iteration = (
        *_paid(rates, seconds, usage.iterations_kwh / n, keys, "usd_each"),
        CostFigure("h200_single", "one H200", h200, at_h200, "usd_each"),
    )
    keys = ("h100_single_proxy", "h100_8gpu_node_proxy", "h100_8gpu_node_target_scale")
    search = tuple(_paid(rates, usage.seconds, usage.kwh, keys, "usd"))
    final, cost = bill.run.usd, bill.search.usd
    sensitivity = tuple(
        CostFigure(
            f"wrong_pick_rate_{rate:g}",
            f"{rate:.0%}",
            rate * final - cost,
            f"{rate:g} × ${final:,.2f} − S",
        )
        for rate in SENSITIVITY
    )
    derived = ("spark_amortized", "spark_electricity", "spark_total", "cloud_8xh100")
    hourly = {f"{name}_hourly": round(getattr(rates, f"{name}_hourly"), 4) for name in derived}
    return View(
        inputs={
            "source": usage.source,
            "rates": rates.model_dump() | {"iter_seconds": seconds, "campaign_iters": n} | hourly,
            "usage": usage.model_dump() | {"iter_s": seconds},
            "bill": bill.as_json(),
        },
        sections=(
            CostSection("phases", "the three phases", tuple(_phases(bill))),
            CostSection("per_iter_usd", f"one iteration, {seconds:.4g} s", iteration),
            CostSection(f"campaign_{n}_iters_usd", f"the search, {n} iterations", search),
            CostSection("final_pretrain_usd", "the final run", tuple(_final(bill.run))),
            CostSection(
                "expected_value_argument",
                "the article's argument, which rests on an assumed chance p and measures nothing",
                _worth(rates, bill),
            ),
            CostSection("sensitivity_usd", "its savings, had p been", sensitivity),
            CostSection("ratios", "cloud against desk", tuple(_ratios(iteration))),
        ),
        assumptions=tuple(_assumptions(rates, usage, bill)),
    )


def _phases(bill: Bill) -> Iterator[CostFigure]:
    for phase in bill.search.phases:
        key, label = f"{phase.name.replace(' ', '_')}_usd", f"{phase.name}, {phase.hours:,.4g} h"
        yield CostFigure(key, label, phase.usd, phase.why)


def _paid(
    rates: Rates, seconds: float, kwh: float, keys: tuple[str, str, str], unit: Unit
) -> Iterator[CostFigure]:
    """Yield the cost of one piece of work, paid for in five ways.

    :param keys: the published keys of the three cloud figures.
    """
    hours, electricity = seconds / 3600, kwh * rates.kwh_usd
    use = electricity + hours * rates.spark_amortized_hourly
    h100 = hours / rates.h100_speedup * rates.h100_hourly_usd
    node = GPUS_PER_NODE * h100
    scaled = rates.target_scale * node
    drawn = f"{kwh:.4g} kWh × ${rates.kwh_usd:g}/kWh"
    owned = f"electricity + {seconds:,.6g} s × ${rates.spark_amortized_hourly:.4g}/h"
    rent = f"{seconds:,.6g} s / {rates.h100_speedup:g} × ${rates.h100_hourly_usd:g}/h"
    scale = f"{rates.target_scale:g} × the node"
    yield CostFigure("spark_electricity_only", "desk, electricity", electricity, drawn, unit)
    yield CostFigure("spark_total_cost_of_use", "desk, cost of use", use, owned, unit)
    yield CostFigure(keys[0], "one H100", h100, rent, unit)
    yield CostFigure(keys[1], "a node of 8 H100", node, "8 × one H100", unit)
    yield CostFigure(keys[2], "the node at the target's scale", scaled, scale, unit)


def _final(run: CloudRun) -> Iterator[CostFigure]:
    if run.source != SUPPOSED_RUN:
        key, label = "planned_run", f"{run.gpus} {run.gpu.upper()}, as {run.source} plans it"
    else:
        week = run.hours == PUBLISHED_FINAL_HOURS
        key = "8xh100_one_week" if week else f"8xh100_{run.hours:g}_hours"
        label = "a node of 8 H100"
    rent = f"{run.gpus} × ${run.gpu_hourly_usd:g}/h × {run.hours:,.6g} h"
    yield CostFigure(key, label, run.undisturbed_usd, rent)
    if run.preemption.per_day:
        share = "losses / h × (hours between saves / 2 + hours to restart) + saves"
        label = "share of the time lost to pre-emptions"
        lost, usd = run.preemption.share_lost, run.usd
        yield CostFigure("share_lost_to_preemption", label, lost, share, "share")
        yield CostFigure(
            "with_preemptions", "expected, pre-emptions included", usd, "run / (1 − share)"
        )
        label = "what a firm GPU-hour may cost to be as cheap"
        yield CostFigure("firm_gpu_hourly", label, run.firm_hourly_usd, "price / (1 − share)")


def _worth(rates: Rates, bill: Bill) -> tuple[CostFigure, ...]:
    p, search, loss = bill.wrong_pick_rate, bill.search.usd, bill.expected_loss_usd
    q = bill.wrong_pick_rate_after
    return (
        CostFigure(
            "wrong_pick_rate", "chance that a blind booking is wasted, assumed", p, "p", "share"
        ),
        CostFigure(
            "expected_loss_from_blind_booking_usd",
            f"expected loss of booking blind, if p is {p:g}",
            loss,
            "p × F",
        ),
        CostFigure("spark_recipe_search_cost_usd", "the search", search, "S, cost of use above"),
        CostFigure(
            "expected_savings_per_campaign_usd",
            f"expected savings, if p is {p:g}",
            loss - search,
            "p × F − S",
        ),
        CostFigure(
            "ratio_savings_to_spark_cost",
            f"savings for a dollar of search, if p is {p:g}",
            ratio(loss - search, search),
            "(p × F − S) / S",
            "ratio",
        ),
        CostFigure(
            "wrong_pick_rate_after",
            "chance that is left after the search, assumed",
            q,
            "q",
            "share",
        ),
        CostFigure(
            "expected_savings_with_risk_left_usd",
            f"expected savings, if p is {p:g} and q {q:g}",
            bill.expected_savings_usd,
            "(p − q) × F − S",
        ),
        *_break_even(rates, bill),
    )


def _break_even(rates: Rates, bill: Bill) -> tuple[CostFigure, ...]:
    run, search, loss = bill.run.usd, bill.search.usd, bill.expected_loss_usd
    marginal = loss - bill.search.electricity_usd
    return (
        CostFigure(
            "break_even_wrong_pick_rate",
            "break-even: the chance below which the search loses",
            ratio(search, run),
            "S / F",
            "share",
        ),
        CostFigure(
            "break_even_share_of_risk_removed",
            "break-even: of that chance, what the search must remove",
            ratio(search, loss),
            "S / (p × F); above 1 it loses whatever it finds",
            "share",
        ),
        CostFigure(
            "campaigns_to_pay_for_the_unit",
            "campaigns that pay for the whole unit",
            rates.spark_capex_usd / marginal if marginal > 0 else None,
            "capex / (p × F − electricity)",
            "count",
        ),
    )


def _ratios(iteration: tuple[CostFigure, ...]) -> Iterator[CostFigure]:
    desk, use, h100, node, at_target, _ = (figure.value or 0.0 for figure in iteration)
    for key, label, cloud, owned in (
        ("h100_single_vs_spark_electricity", "one H100 to the desk's electricity", h100, desk),
        ("h100_8gpu_vs_spark_total", "a node to the desk's cost of use", node, use),
        (
            "target_scale_8gpu_vs_spark_total",
            "a node at the target's scale to it",
            at_target,
            use,
        ),
    ):
        yield CostFigure(key, label, ratio(cloud, owned), "of one iteration", "ratio")


def _assumptions(rates: Rates, usage: SearchUsage, bill: Bill) -> Iterator[str]:
    """Yield the assumptions: everything that was not measured."""
    yield (
        f"WRONG_PICK_RATE p = {bill.wrong_pick_rate:g} and WRONG_PICK_RATE_AFTER q = "
        f"{bill.wrong_pick_rate_after:g} are assumed, not measured; lines without q take the "
        "search "
        "to leave no chance, and a wasted run is worth nothing"
    )
    if not bill.run.preemption.per_day:
        yield "the rented GPUs are never taken away (PREEMPTIONS_PER_DAY)"
    yield (
        f"an H100 does an iteration {rates.h100_speedup:g}× as fast as the desk (H100_SPEEDUP), a "
        f"node no faster, and the target's costs {rates.target_scale:g} of a proxy's (TARGET_SCALE)"
    )
    yield (
        f"the unit's ${rates.spark_capex_usd:,.0f} are spread over {rates.spark_life_years:g} years"
        " of use around the clock, whatever machine this was"
    )
    if bill.run.source == SUPPOSED_RUN:
        yield (
            f"FINAL_NODE_HOURS, {bill.run.hours:g} h on a node of 8 H100, is the article's "
            "assumption: --handoff takes a plan's"
        )
    if usage.source == SUPPOSED:
        yield (
            "ITER_SECONDS and CAMPAIGN_ITERS are not measured here: see --campaign; the article "
            f"counts one trial an iteration, a night takes {rates.runs_per_iteration:g} "
            "(RUNS_PER_ITERATION)"
        )
    elif usage.metered_s == 0:
        machine = usage.machine or "the machine"
        yield f"no energy was metered: SPARK_KW, {rates.spark_kw:g} kW, stands for {machine}'s draw"
    else:
        yield (
            f"energy was metered for {usage.metered_s:,.0f} of {usage.seconds:,.0f} s, and of the "
            "GPU alone"
        )
