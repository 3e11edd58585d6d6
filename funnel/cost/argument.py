"""The argument for searching before booking, in money.

With S what the search cost, F the final run and p the chance that a run booked blind is wasted:

    expected loss of booking blind = p × F
    expected savings               = p × F − S

which supposes that the search leaves no such chance. It need not: the savings are above zero as
long as p exceeds ``S / F``, or the search removes more than ``S / (p × F)`` of the chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.settings.rates import GPUS_PER_NODE, Rates
from funnel.cost.bill import CAMPAIGN_KEYS, ITER_KEYS, Bill
from funnel.cost.figures import Figure, Section, ratio
from funnel.cost.usage import SUPPOSED, Usage

PUBLISHED_FINAL_HOURS = 168
SENSITIVITY = (0.01, 0.05, 0.10, 0.25, 0.50)


@dataclass(frozen=True, slots=True)
class CostReport:
    """Every section, and what it takes for granted."""

    rates: Rates
    usage: Usage
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
            "formulas": {section.name: section.formulas() for section in self.sections},
            "assumptions": list(self.assumptions),
        }


def cost_report(rates: Rates, usage: Usage) -> CostReport:
    """The money of one search and of the run it is for."""
    money = _Money(rates, usage)
    return CostReport(
        rates=rates,
        usage=usage,
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
        assumptions=tuple(_assumptions(rates, usage)),
    )


class _Money:
    """The figures of the sections, each from those above it."""

    def __init__(self, rates: Rates, usage: Usage) -> None:
        self._rates = rates
        self._usage = usage
        self._search = Bill.of(rates, usage.seconds, usage.kwh)
        self._iter = Bill.of(rates, usage.iter_s, usage.iterations_kwh / usage.iterations)
        self._final = rates.cloud_8xh100_hourly * rates.final_node_hours
        self._blind_loss = rates.wrong_pick_rate * self._final
        self._savings = self._blind_loss - self._search.desk_total

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
        hours = self._rates.final_node_hours
        key = "8xh100_one_week" if hours == PUBLISHED_FINAL_HOURS else f"8xh100_{hours:g}_hours"
        node = f"{GPUS_PER_NODE} × ${self._rates.h100_hourly_usd:g}/h"
        return (_usd(key, "a node of 8 H100", self._final, f"{node} × {hours:g} h"),)

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


def _assumptions(rates: Rates, usage: Usage) -> list[str]:
    years = f"{rates.spark_life_years:g} years"
    stated = [
        f"WRONG_PICK_RATE {rates.wrong_pick_rate:g} is nobody's measurement; the break-even lines "
        "say how far it may be wrong",
        "the search is taken to leave no chance of a wrong pick, and a wasted final run to be "
        "worth nothing",
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
