"""Compare owned units with rented GPUs: a month of both, and a cluster.

In a month, n searches of h hours on u owned units, and r runs, cost

    hybrid     = u × capex / life in months + n × electricity of a search + r × F
    all rented = n × a search on one rented H100 + r × F
    all owned  = v × capex / life in months + power, with
                 v = ⌈(n h + r × GPU-hours × GPU TFLOP/s / unit TFLOP/s) / hours of a month⌉

Owned machines have no pre-emptions. The number of units that match rented GPUs, and the month in
which they have paid off, are

    units            = ⌈GPUs × GPU TFLOP/s / (unit TFLOP/s × scaling)⌉
    break-even month = units × capex / (rent of a month − power of a month)

TFLOP/s are those reached in training: GPU_UTILISATION of a data sheet's, and SPARK_TFLOPS.
"""

import math
from collections.abc import Mapping

from autoresearch.errors import SettingsError
from funnel.cost.bill import Bill
from funnel.cost.figures import CostFigure, CostSection, Unit, View, ratio
from funnel.cost.gpus import Gpu, find_gpu, hourly_usd
from funnel.cost.rates import Rates

Table = tuple[tuple[str, str, str, Unit], ...]
"""Key, label, formula and unit of each figure."""

MONTH: Table = (
    ("desk_hours", "hours on owned units", "searches × hours of one", "count"),
    ("rented_gpu_hours", "hours of rented GPUs", "runs × GPUs × expected hours", "count"),
    ("unit_month_usd", "the units' write-off", "units × capex / life in months", "usd"),
    ("electricity_usd", "the searches' electricity", "searches × kWh × KWH_USD", "usd"),
    ("runs_usd", "the runs, rented", "GPU-hours × price", "usd"),
    ("hybrid_usd", "searches owned, runs rented", "write-off + electricity + runs", "usd"),
    ("all_rented_usd", "all of it rented", "searches on one H100 + runs", "usd"),
    ("all_owned_usd", "all of it owned", "as many units as that takes, and power", "usd"),
    (
        "searches_to_pay",
        "searches a month from which a unit pays",
        "a unit's month / (a search rented − its electricity)",
        "count",
    ),
)
CLUSTER: Table = (
    ("units", "units as fast", "GPUs × TFLOP/s / (unit TFLOP/s × scaling)", "count"),
    ("owned_capex_usd", "owned: paid at the start", "units × SPARK_CAPEX_USD", "usd"),
    ("owned_amortized_usd", "owned: capex, a month", "capex / life in months", "usd"),
    ("owned_power_usd", "owned: power, a month", "units × kW × hours × KWH_USD", "usd"),
    ("owned_usd", "owned, a month", "capex + power", "usd"),
    ("rented_usd", "rented, a month", "GPUs × price × hours", "usd"),
    ("owned_to_rented", "owned to rented", "a month of each", "ratio"),
    ("break_even_months", "break-even month", "capex / (rent − power)", "months"),
)


def _figures(table: Table, values: Mapping[str, float | None]) -> tuple[CostFigure, ...]:
    return tuple(
        CostFigure(key, label, values[key], formula, unit) for key, label, formula, unit in table
    )


def month_view(rates: Rates, bill: Bill, *, searches: int, runs: float, units: int) -> View:
    """Return the view of a month of searches on owned units and final runs on rented GPUs.

    :raises SettingsError: if the units have too few hours for the searches.
    """
    search, run, month = bill.search, bill.run, rates.hours_per_month
    desk_hours = searches * search.hours
    if desk_hours > units * month:
        raise SettingsError(
            f"{searches} searches of {search.hours:.3g} h are {desk_hours:,.0f} hours, and "
            f"--units {units} has {units * month:,.0f} in a month; ask for fewer, or more --units"
        )
    a_unit = rates.spark_capex_usd / rates.spark_life_months
    gpu_tflops = find_gpu(run.gpu).bf16_tflops * rates.gpu_utilisation
    on_units = desk_hours + runs * run.gpus * run.hours * gpu_tflops / rates.spark_tflops
    all_owned = math.ceil(on_units / month) * a_unit + on_units * rates.spark_electricity_hourly
    on_gpu = search.hours / rates.h100_speedup * rates.h100_hourly_usd
    saved = on_gpu - search.electricity_usd
    write_off, power, rent = units * a_unit, searches * search.electricity_usd, runs * run.usd
    options = {
        "units for the searches and GPUs rented for the runs": write_off + power + rent,
        "everything rented": searches * on_gpu + rent,
        "everything owned": all_owned,
    }
    usd, cheapest = min((usd, option) for option, usd in options.items())
    verdict = f"cheapest at ${usd:,.2f} a month: {cheapest}"
    hybrid, all_rented, _ = options.values()
    values = {
        "desk_hours": desk_hours,
        "rented_gpu_hours": runs * run.gpus * run.expected_hours,
        "unit_month_usd": write_off,
        "electricity_usd": power,
        "runs_usd": rent,
        "hybrid_usd": hybrid,
        "all_rented_usd": all_rented,
        "all_owned_usd": all_owned,
        "searches_to_pay": a_unit / saved if saved > 0 else None,
    }
    asked = {"searches": searches, "runs": runs, "units": units}
    return View(
        inputs={"asked": asked, "verdict": verdict, "bill": bill.as_json()},
        sections=(CostSection("hybrid_month_usd", "a month of both", _figures(MONTH, values)),),
        assumptions=(
            *_speeds(rates),
            f"an H100 searches {rates.h100_speedup:g}× as fast as a unit (H100_SPEEDUP)",
            "units scale perfectly, which flatters owning all",
        ),
        verdict=verdict,
    )


def cluster_view(rates: Rates, gpu: Gpu, gpus: int) -> View:
    """Return the view of a month of rented GPUs beside a month of equally fast owned units."""
    gpu_tflops, unit_tflops = gpu.bf16_tflops * rates.gpu_utilisation, rates.spark_tflops
    units = math.ceil(gpus * gpu_tflops / (unit_tflops * rates.spark_scaling))
    life, hours = rates.spark_life_months, rates.hours_per_month
    capex, power = units * rates.spark_capex_usd, units * rates.spark_electricity_hourly * hours
    owned, rented = capex / life + power, gpus * hourly_usd(gpu, rates) * hours
    months = capex / (rented - power) if rented > power else None
    pays = months is not None and months <= life
    values = {
        "units": units,
        "owned_capex_usd": capex,
        "owned_amortized_usd": capex / life,
        "owned_power_usd": power,
        "owned_usd": owned,
        "rented_usd": rented,
        "owned_to_rented": ratio(owned, rented),
        "break_even_months": months,
    }
    verdict = "owning never pays: the units' power costs as much as the rent"
    if months is not None:
        within = "within" if pays else "beyond"
        verdict = f"owning pays after {months:.1f} months, {within} the units' life of {life:g}"
    title = f"a month of {gpus} {gpu.name.upper()}, and of units as fast"
    return View(
        inputs={
            "rates": rates.model_dump(),
            "asked": {"gpus": gpus, "gpu": gpu.name},
            "pays_within_life": pays,
        },
        sections=(CostSection("monthly_usd", title, _figures(CLUSTER, values)),),
        assumptions=(
            *_speeds(rates),
            f"the GPUs cost ${hourly_usd(gpu, rates):g}/h, spot; firm they cost "
            f"${hourly_usd(gpu, rates, firm=True):g}",
            f"together units keep {rates.spark_scaling:.0%} of their speed (SPARK_SCALING)",
            "units are worth nothing after their life, and need no network, cooling or care",
        ),
        verdict=verdict,
    )


def _speeds(rates: Rates) -> tuple[str, str]:
    return (
        f"a GPU reaches {rates.gpu_utilisation:.0%} of its data sheet (GPU_UTILISATION), a unit "
        f"{rates.spark_tflops:.3g} TFLOP/s (SPARK_TFLOPS), at all work",
        "the capex is charged in full, whatever else the units are used for",
    )
