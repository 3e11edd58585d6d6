"""A month of both: searches on units that are owned, final runs on GPUs that are rented.

With n searches of h hours on u units, r runs, life m in months:

    hybrid     = u × capex / m + n × electricity of a search + r × run
    all rented = n × a search on one rented GPU + r × run
    all owned  = v × (capex / m + kW × hours × USD per kWh),
                 v = ⌈(n h + r × GPU-hours × GPU TFLOP/s / unit TFLOP/s) / hours of a month⌉

A run's GPU-hours are those it is expected to take, pre-emptions included, except that what is owned
nobody takes away.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from agent.settings.rates import Rates
from autoresearch.errors import SettingsError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, PositiveInt
from funnel.cost.bill import Bill
from funnel.cost.cluster import HOURS_PER_MONTH, MONTHS_PER_YEAR, UNIT_TFLOPS, Tflops
from funnel.cost.figures import Figure, Section
from funnel.cost.gpus import UTILISATION, find_gpu
from funnel.cost.whole_bill import WholeBill


class MonthQuestion(Frozen):
    """How much is done in a month, and with what."""

    searches: Annotated[int, Field(ge=1, le=10**6)] = 4
    runs: NonNegative = 1.0
    """Final runs; a share of one is a run of several months."""
    units: PositiveInt = 1
    """Owned."""
    unit_tflops: Tflops = UNIT_TFLOPS
    """That a unit reaches in training."""


class MonthAnswer(Frozen):
    """What it comes to, in hours and USD."""

    desk_hours: NonNegative
    """Of all units together."""
    rented_gpu_hours: NonNegative
    unit_month_usd: NonNegative
    """The write-off of the units that are owned."""
    electricity_usd: NonNegative
    runs_usd: NonNegative
    rented_searches_usd: NonNegative
    """The searches on one rented GPU."""
    owned_units: NonNegativeInt
    """That would do the runs as well."""
    owned_usd: NonNegative
    searches_to_pay: float | None
    """Searches a month from which owning a unit is cheaper than renting for them; None: never."""

    @property
    def hybrid_usd(self) -> float:
        return self.unit_month_usd + self.electricity_usd + self.runs_usd

    @property
    def all_rented_usd(self) -> float:
        return self.rented_searches_usd + self.runs_usd

    def verdict(self) -> str:
        """One sentence."""
        ways = {
            "units for the searches and GPUs rented for the runs": self.hybrid_usd,
            "everything rented": self.all_rented_usd,
            "everything owned": self.owned_usd,
        }
        cheapest = min(ways, key=lambda way: ways[way])
        return f"cheapest at ${ways[cheapest]:,.2f} a month: {cheapest}"


def compare_month(rates: Rates, bill: WholeBill, asked: MonthQuestion) -> MonthAnswer:
    """The formulas of this module.

    :raises SettingsError: where the units have too few hours for the searches.
    """
    desk_hours = asked.searches * bill.search.hours
    if desk_hours > asked.units * HOURS_PER_MONTH:
        raise SettingsError(
            f"{asked.searches} searches of {bill.search.hours:.3g} h are {desk_hours:,.0f} hours, "
            f"and {asked.units} unit{'s have' if asked.units > 1 else ' has'} "
            f"{asked.units * HOURS_PER_MONTH:,.0f} in a month; ask for fewer, or more --units"
        )
    a_month = rates.spark_capex_usd / (rates.spark_life_years * MONTHS_PER_YEAR)
    on_gpu = Bill.of(rates, bill.search.seconds, bill.search.kwh).h100
    run = bill.run
    gpu_tflops = find_gpu(run.gpu).bf16_tflops * UTILISATION
    run_unit_hours = asked.runs * run.hours * run.gpus * gpu_tflops / asked.unit_tflops
    owned_units = math.ceil((desk_hours + run_unit_hours) / HOURS_PER_MONTH)
    power = rates.spark_electricity_hourly * (desk_hours + run_unit_hours)
    saved = on_gpu - bill.search.electricity_usd
    return MonthAnswer(
        desk_hours=desk_hours,
        rented_gpu_hours=asked.runs * run.gpus * run.expected_hours,
        unit_month_usd=asked.units * a_month,
        electricity_usd=asked.searches * bill.search.electricity_usd,
        runs_usd=asked.runs * run.usd,
        rented_searches_usd=asked.searches * on_gpu,
        owned_units=owned_units,
        owned_usd=owned_units * a_month + power,
        searches_to_pay=a_month / saved if saved > 0 else None,
    )


def month_section(
    rates: Rates, bill: WholeBill, asked: MonthQuestion, answer: MonthAnswer
) -> Section:
    """The table."""
    run = bill.run
    capex = f"{asked.units} × ${rates.spark_capex_usd:,.0f} over {rates.spark_life_years:g} years"
    gpu_hours = f"{asked.runs:g} × {run.gpus} × {run.expected_hours:,.4g} h"
    figures = (
        Figure(
            "desk_hours",
            "hours on owned units",
            answer.desk_hours,
            "count",
            f"{asked.searches} × {bill.search.hours:.4g} h",
        ),
        Figure(
            "rented_gpu_hours", "hours of rented GPUs", answer.rented_gpu_hours, "count", gpu_hours
        ),
        _usd("unit_month_usd", "the units' write-off", answer.unit_month_usd, capex),
        _usd(
            "electricity_usd",
            "the searches' electricity",
            answer.electricity_usd,
            f"{asked.searches} × {bill.search.kwh:.4g} kWh × ${rates.kwh_usd:g}",
        ),
        _usd(
            "runs_usd",
            "the runs, rented",
            answer.runs_usd,
            f"{gpu_hours} × ${run.gpu_hourly_usd:g}/h",
        ),
        _usd(
            "hybrid_usd",
            "searches owned, runs rented",
            answer.hybrid_usd,
            "write-off + electricity + runs",
        ),
        _usd(
            "all_rented_usd",
            "all of it rented",
            answer.all_rented_usd,
            f"searches on one H100 at ${rates.h100_hourly_usd:g}/h + runs",
        ),
        _usd(
            "all_owned_usd",
            f"all of it owned: {answer.owned_units:,} units",
            answer.owned_usd,
            f"at {asked.unit_tflops:.3g} TFLOP/s a unit, scaling perfectly",
        ),
        Figure(
            "searches_to_pay",
            "searches a month from which a unit pays",
            answer.searches_to_pay,
            "count",
            "never: power costs as much as the rent"
            if answer.searches_to_pay is None
            else "a unit's month / (a search rented − its electricity)",
        ),
    )
    return Section("hybrid_month_usd", "a month of both", figures)


def month_assumptions(rates: Rates, asked: MonthQuestion) -> list[str]:
    """What was not measured."""
    return [
        f"an H100 is taken to search {rates.h100_speedup:g}× as fast as a unit (H100_SPEEDUP)",
        f"a rented GPU is taken to reach {UTILISATION:.0%} of its data sheet, and a unit "
        f"{asked.unit_tflops:.3g} TFLOP/s; units are taken to scale perfectly, which flatters "
        "owning all",
        "a unit's whole write-off is charged to the searches, whatever else it is used for",
    ]


def _usd(key: str, label: str, value: float, formula: str) -> Figure:
    return Figure(key, label, value, "usd", formula)
