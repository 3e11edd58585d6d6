"""Desktop units owned against GPUs rented, month by month.

    units            = ceil(GPUs × GPU TFLOP/s / (unit TFLOP/s × scaling))
    owned a month    = units × (capex / (12 × life in years) + kW × hours × USD per kWh)
    rented a month   = GPUs × USD per GPU-hour × hours
    break-even month = units × capex / (rented a month − units × power a month)

TFLOP/s are those that training reaches, not those of a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from agent.settings.rates import HOURS_PER_YEAR, Price, Rates
from autoresearch.values import Frozen, PositiveInt
from funnel.cost.figures import Figure, Section, ratio
from funnel.cost.gpus import GPUS, UTILISATION, hourly_usd

GpuName: TypeAlias = Literal["h100", "h200", "b200"]
Tflops: TypeAlias = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]

MONTHS_PER_YEAR = 12
HOURS_PER_MONTH = HOURS_PER_YEAR / MONTHS_PER_YEAR
LONGEST_MONTH_HOURS = 31 * 24

UNIT_TFLOPS = 12_820 * 6 * 354.6e6 / 1e12
"""A GB10 in bf16: the 12,820 tokens/s published for a model of 354.6 M parameters, at 6 FLOPs a
parameter and token."""


class ClusterQuestion(Frozen):
    """What is compared."""

    gpus: Annotated[int, Field(gt=0, le=10**9)] = 8
    gpu: GpuName = "h100"
    gpu_tflops: Tflops
    """What one GPU gets; see :func:`usual_tflops`."""
    gpu_hourly_usd: Price | None = None
    """The price of one GPU; None: the rates'."""
    unit_tflops: Tflops = UNIT_TFLOPS
    scaling: Annotated[float, Field(ge=1e-6, le=1, allow_inf_nan=False)] = 1.0
    """The share of the units' added-up speed that is left when they work together."""
    hours_per_month: Annotated[float, Field(gt=0, le=LONGEST_MONTH_HOURS)] = HOURS_PER_MONTH
    """In use: rented and paid for, or drawing power."""

    def hourly_usd(self, rates: Rates) -> float:
        """What a GPU costs an hour."""
        return hourly_usd(GPUS[self.gpu], rates, self.gpu_hourly_usd)


class ClusterAnswer(Frozen):
    """Units, what a month of each costs in USD, and when owning has become the cheaper."""

    units: PositiveInt
    owned_capex_usd: float
    owned_amortized_usd: float
    owned_power_usd: float
    rented_usd: float
    break_even_months: float | None
    """None: never, as power alone costs as much as the rent."""
    life_months: float

    @property
    def owned_usd(self) -> float:
        """A month, capex amortised."""
        return self.owned_amortized_usd + self.owned_power_usd

    @property
    def pays_within_life(self) -> bool:
        return self.break_even_months is not None and self.break_even_months <= self.life_months

    def verdict(self) -> str:
        """One sentence."""
        if self.break_even_months is None:
            return "owning never pays: the units' power costs as much as the rent"
        when = f"after {self.break_even_months:.1f} months"
        if self.pays_within_life:
            return f"owning pays {when}, within the units' life of {self.life_months:g}"
        return f"owning would pay {when}, but the units' life is {self.life_months:g}: rent"


def compare_cluster(rates: Rates, asked: ClusterQuestion) -> ClusterAnswer:
    """The formulas of this module."""
    units = math.ceil(asked.gpus * asked.gpu_tflops / (asked.unit_tflops * asked.scaling))
    life_months = rates.spark_life_years * MONTHS_PER_YEAR
    capex = units * rates.spark_capex_usd
    power = units * rates.spark_electricity_hourly * asked.hours_per_month
    rented = asked.gpus * asked.hourly_usd(rates) * asked.hours_per_month
    return ClusterAnswer(
        units=units,
        owned_capex_usd=capex,
        owned_amortized_usd=capex / life_months,
        owned_power_usd=power,
        rented_usd=rented,
        break_even_months=capex / (rented - power) if rented > power else None,
        life_months=life_months,
    )


def usual_tflops(gpu: GpuName) -> float:
    """What one is taken to reach in training."""
    return GPUS[gpu].bf16_tflops * UTILISATION


def cluster_section(rates: Rates, asked: ClusterQuestion, answer: ClusterAnswer) -> Section:
    """The monthly table."""
    figures = (*_owned(rates, asked, answer), *_against_rent(rates, asked, answer))
    return Section("monthly_usd", "a month of each", figures)


def _owned(rates: Rates, asked: ClusterQuestion, answer: ClusterAnswer) -> Iterator[Figure]:
    """How many units, and what they cost at the start and each month."""
    units = answer.units
    gpus = f"{asked.gpus} {asked.gpu.upper()}"
    pace = f"{asked.gpus} × {asked.gpu_tflops:.4g} / ({asked.unit_tflops:.4g} × {asked.scaling:g})"
    bought = f"{units} × ${rates.spark_capex_usd:,.0f}"
    power = (
        f"{units} × {rates.spark_kw:g} kW × {asked.hours_per_month:g} h × ${rates.kwh_usd:g}/kWh"
    )
    yield Figure("units", f"units as fast as {gpus}", units, "count", f"{pace} TFLOP/s, rounded up")
    yield Figure(
        "owned_capex_usd", "owned: paid at the start", answer.owned_capex_usd, "usd", bought
    )
    amortized = answer.owned_amortized_usd
    life = f"over {answer.life_months:g} months"
    yield Figure("owned_amortized_usd", "owned: capex, a month", amortized, "usd", life)
    yield Figure("owned_power_usd", "owned: power, a month", answer.owned_power_usd, "usd", power)
    yield Figure("owned_usd", "owned, a month", answer.owned_usd, "usd", "capex + power")


def _against_rent(rates: Rates, asked: ClusterQuestion, answer: ClusterAnswer) -> Iterator[Figure]:
    """The same work rented, and from when on owning is cheaper."""
    gpus = f"{asked.gpus} {asked.gpu.upper()}"
    rent = f"{gpus} × ${asked.hourly_usd(rates):g}/h × {asked.hours_per_month:g} h"
    yield Figure("rented_usd", "rented, a month", answer.rented_usd, "usd", rent)
    share = ratio(answer.owned_usd, answer.rented_usd)
    yield Figure("owned_to_rented", "owned to rented", share, "ratio", "a month of each")
    months = answer.break_even_months
    never = "never: power alone costs as much as the rent"
    why = never if months is None else "capex / (rent − power)"
    yield Figure("break_even_months", "break-even month", months, "months", why)


def cluster_assumptions(asked: ClusterQuestion) -> list[str]:
    """What was not measured."""
    stated = [
        "one speed stands for all work: that of training a model of some 350 M parameters in bf16",
        "the units are taken to be worth nothing at the end of their life, and to need no network, "
        "cooling or care",
    ]
    if asked.unit_tflops == UNIT_TFLOPS:
        stated.append(
            f"unit: {UNIT_TFLOPS:.3g} TFLOP/s = 12,820 tokens/s × 6 × 354.6 M parameters, published"
            " for a GB10"
        )
    if asked.gpu_tflops == usual_tflops(asked.gpu):
        stated.append(
            f"GPU: {asked.gpu_tflops:.4g} TFLOP/s = {GPUS[asked.gpu].bf16_tflops:g} of the data "
            "sheet × "
            f"{UTILISATION:g} utilisation, assumed"
        )
    if asked.scaling == 1:
        stated.append("the units are taken to scale perfectly, which flatters them")
    return stated
