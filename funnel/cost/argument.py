"""The argument for searching before booking, in money.

With S what the search cost, F the final run and p the chance that a run booked blind is wasted:

    expected loss of booking blind = p × F
    expected savings               = p × F − S

which supposes that the search leaves no such chance. It need not: the savings are above zero as
long as p exceeds ``S / F``, or the search removes more than ``S / (p × F)`` of the chance. With q
left of it they are (p − q) × F − S. All of it is read from :mod:`funnel.cost.whole_bill`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.settings.rates import Rates
from funnel.cost.bill import CAMPAIGN_KEYS, ITER_KEYS, Bill
from funnel.cost.figures import Figure, Section, ratio
from funnel.cost.measured import Measured
from funnel.cost.usage import SUPPOSED, Usage
from funnel.cost.whole_bill import CloudRun, WholeBill, whole_bill

PUBLISHED_FINAL_HOURS = 168
SENSITIVITY = (0.01, 0.05, 0.10, 0.25, 0.50)


@dataclass(frozen=True, slots=True)
class CostReport:
    """Every section, and what it takes for granted."""

    rates: Rates
    usage: Usage
    bill: WholeBill
    sections: tuple[Section, ...]
    assumptions: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        derived = ("spark_amortized", "spark_electricity", "spark_total", "cloud_8xh100")
        hourly = {f"{name}_hourly": getattr(self.rates, f"{name}_hourly") for name in derived}
        rates = self.rates.model_dump() | {
            "iter_seconds": self.usage.iter_s,
            "campaign_iters": self.usage.iterations,
            **{name: round(usd, 4) for name, usd in hourly.items()},
        }
        sections = {section.name: section.values() for section in self.sections}
        return {
            "source": self.usage.source,
            "rates": rates,
            **sections,
            "usage": self.usage.model_dump() | {"iter_s": self.usage.iter_s},
            "bill": self.bill.as_json(),
            "formulas": {section.name: section.formulas() for section in self.sections},
            "assumptions": list(self.assumptions),
        }


def cost_report(
    rates: Rates, usage: Usage, run: CloudRun | None = None, measured: Measured | None = None
) -> CostReport:
    """The money of one search and of the run it is for.

    :param run: as a launch plan has it; None: as the rates suppose it.
    :param measured: what was measured of the search's worth.
    """
    bill = whole_bill(rates, usage, run or CloudRun.supposed(rates), measured or Measured())
    money = _Money(rates, usage, bill)
    return CostReport(
        rates=rates,
        usage=usage,
        bill=bill,
        sections=(
            Section("per_iter_usd", f"one iteration, {usage.iter_s:.4g} s", money.per_iter()),
            Section(
                f"campaign_{usage.iterations}_iters_usd",
                f"the search, {usage.iterations} iterations",
                money.campaign(),
            ),
            Section("final_pretrain_usd", "the final run", money.final()),
            Section("expected_value_argument", "what the search is worth", money.argument()),
            Section("sensitivity_usd", "savings, had the rate been", money.sensitivity()),
            Section("ratios", "cloud against desk", money.ratios()),
        ),
        assumptions=tuple(_assumptions(rates, usage, bill)),
    )


class _Money:
    """The figures of the sections, each from those above it."""

    def __init__(self, rates: Rates, usage: Usage, bill: WholeBill) -> None:
        self._rates = rates
        self._usage = usage
        self._bill = bill
        self._run = bill.run
        self._search = Bill.of(rates, usage.seconds, usage.kwh)
        self._iter = Bill.of(rates, usage.iter_s, usage.iterations_kwh / usage.iterations)
        self._final = bill.run.usd
        self._blind_loss = bill.expected_loss_usd
        self._savings = self._blind_loss - bill.search.usd

    def per_iter(self) -> tuple[Figure, ...]:
        rates = self._rates
        h200 = self._iter.gpu_hours(rates) * rates.h200_hourly_usd
        h200_formula = f"{self._iter.gpu_formula(rates)} × ${rates.h200_hourly_usd:g}/h"
        return (
            *self._iter.figures(rates, ITER_KEYS, "usd_each"),
            Figure("h200_single", "one H200", h200, "usd_each", h200_formula),
        )

    def campaign(self) -> tuple[Figure, ...]:
        return self._search.figures(self._rates, CAMPAIGN_KEYS, "usd")

    def final(self) -> tuple[Figure, ...]:
        run, hours = self._run, self._run.hours
        rent = f"{run.gpus} × ${run.gpu_hourly_usd:g}/h"
        if run.source != CloudRun.supposed(self._rates).source:
            key, label = "planned_run", f"{run.gpus} {run.gpu.upper()}, as {run.source} plans it"
        else:
            key = "8xh100_one_week" if hours == PUBLISHED_FINAL_HOURS else f"8xh100_{hours:g}_hours"
            label = "a node of 8 H100"
        booked = _usd(key, label, run.undisturbed_usd, f"{rent} × {hours:,.6g} h")
        return (booked, *(self._preempted() if run.preemption.per_day else ()))

    def _preempted(self) -> tuple[Figure, ...]:
        run, lost = self._run, self._run.preemption.share_lost
        away = run.preemption
        worth = run.worth_paying_hourly_usd
        return (
            Figure(
                "share_lost_to_preemption",
                "share of the time lost to pre-emptions",
                lost,
                "share",
                f"{away.per_day:g} / 24 h × ({away.checkpoint_hours:.3g} h / 2 + "
                f"{away.restart_hours:g} h)",
            ),
            _usd(
                "with_preemptions",
                "expected, pre-emptions included",
                run.usd,
                "F = run / (1 − share)",
            ),
            _usd(
                "firm_gpu_hourly",
                "what a firm GPU-hour may cost to be as cheap",
                worth,
                "price / (1 − share)",
            ),
        )

    def argument(self) -> tuple[Figure, ...]:
        return (*self._worth(), *self._break_evens())

    def _worth(self) -> tuple[Figure, ...]:
        rates, search = self._rates, self._search.desk_total
        return (
            Figure(
                "wrong_pick_rate",
                "chance that a blind booking is wasted",
                rates.wrong_pick_rate,
                "share",
                "p, assumed",
            ),
            _usd(
                "expected_loss_from_blind_booking_usd",
                "expected loss of booking blind",
                self._blind_loss,
                f"p × F = {rates.wrong_pick_rate:g} × ${self._final:,.2f}",
            ),
            _usd("spark_recipe_search_cost_usd", "the search", search, "S, cost of use above"),
            _usd(
                "expected_savings_per_campaign_usd", "expected savings", self._savings, "p × F − S"
            ),
            Figure(
                "ratio_savings_to_spark_cost",
                "savings for a dollar of search",
                ratio(self._savings, search),
                "ratio",
                "(p × F − S) / S",
            ),
            *self._with_what_is_left(),
        )

    def _with_what_is_left(self) -> tuple[Figure, ...]:
        left = self._rates.wrong_pick_rate_after
        return (
            Figure(
                "wrong_pick_rate_after",
                "chance that is left after the search",
                left,
                "share",
                "q, assumed",
            ),
            _usd(
                "expected_savings_with_risk_left_usd",
                "expected savings, that chance left",
                self._bill.expected_savings_usd,
                "(p − q) × F − S",
            ),
        )

    def _break_evens(self) -> tuple[Figure, ...]:
        search = self._search.desk_total
        marginal = self._blind_loss - self._search.electricity
        pays = ratio(self._rates.spark_capex_usd, marginal) if marginal > 0 else None
        return (
            Figure(
                "break_even_wrong_pick_rate",
                "break-even: the chance below which the search loses",
                ratio(search, self._final),
                "share",
                "S / F",
            ),
            Figure(
                "break_even_share_of_risk_removed",
                "break-even: of that chance, what the search must remove",
                ratio(search, self._blind_loss),
                "share",
                "S / (p × F); above 1 it loses whatever it finds",
            ),
            Figure(
                "campaigns_to_pay_for_the_unit",
                "campaigns that pay for the whole unit",
                pays,
                "count",
                "capex / (p × F − electricity)" if marginal > 0 else "never: p × F ≤ electricity",
            ),
        )

    def sensitivity(self) -> tuple[Figure, ...]:
        search = self._search.desk_total
        return tuple(
            _usd(
                f"wrong_pick_rate_{rate:g}",
                f"{rate:.0%}",
                rate * self._final - search,
                f"{rate:g} × ${self._final:,.2f} − S",
            )
            for rate in SENSITIVITY
        )

    def ratios(self) -> tuple[Figure, ...]:
        bill = self._iter
        return (
            Figure(
                "h100_single_vs_spark_electricity",
                "one H100 to the desk's electricity",
                ratio(bill.h100, bill.electricity),
                "ratio",
                "of one iteration",
            ),
            Figure(
                "h100_8gpu_vs_spark_total",
                "a node to the desk's cost of use",
                ratio(bill.node, bill.desk_total),
                "ratio",
                "of one iteration",
            ),
            Figure(
                "target_scale_8gpu_vs_spark_total",
                "a node at the target's scale to the desk's cost of use",
                ratio(bill.node_at_target, bill.desk_total),
                "ratio",
                "of one iteration",
            ),
        )


def _usd(key: str, label: str, value: float, formula: str) -> Figure:
    return Figure(key, label, value, "usd", formula)


def _assumptions(rates: Rates, usage: Usage, bill: WholeBill) -> list[str]:
    years = f"{rates.spark_life_years:g} years"
    stated = [
        f"WRONG_PICK_RATE {rates.wrong_pick_rate:g} and WRONG_PICK_RATE_AFTER "
        f"{rates.wrong_pick_rate_after:g} are nobody's measurement; the break-even lines say how "
        "far the first may be wrong",
        "but for the lines with the chance that is left, the search is taken to leave none; a "
        "wasted final run is taken to be worth nothing",
        *([_uninterrupted(bill)] if not bill.run.preemption.per_day else []),
        f"an H100 is taken to do an iteration {rates.h100_speedup:g}× as fast as the desk "
        "(H100_SPEEDUP), and a node of 8 no faster than one of them",
        f"TARGET_SCALE {rates.target_scale:g}: what an iteration at the target's scale costs, in "
        "those of a proxy",
        f"the unit's ${rates.spark_capex_usd:,.0f} are spread over {years} of use around the "
        "clock; used half of the time, an hour's share is twice as much",
    ]
    if usage.source == SUPPOSED:
        return [*stated, "ITER_SECONDS and CAMPAIGN_ITERS are not measured here: see --campaign"]
    if usage.metered_s == 0:
        stated.append(
            f"no energy was metered: SPARK_KW, {rates.spark_kw:g} kW, stands for the draw of "
            f"{usage.machine or 'the machine'}"
        )
    else:
        stated.append(
            f"energy was metered for {usage.metered_s:,.0f} of {usage.seconds:,.0f} s, and of the "
            "GPU alone: what else the machine drew is not in it"
        )
    return [*stated, "capex and life are those of the rates, whatever machine this was"]


def _uninterrupted(bill: WholeBill) -> str:
    return (
        f"nothing takes the {bill.run.gpu.upper()} away: spot prices come with pre-emptions, see "
        "PREEMPTIONS_PER_DAY"
    )
