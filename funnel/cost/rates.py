"""Prices and speeds of every cost command, from the environment or ``--set``."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from autoresearch.errors import SettingsError
from autoresearch.values import Frozen
from autoresearch.words import did_you_mean
from trajectory.spending import (
    DEFAULT_KWH_USD,
    KWH_NAMES,
    RUNS_PER_ITERATION,
    KwhPrice,
    Price,
)

HOURS_PER_YEAR = 365.25 * 24
MONTHS_PER_YEAR = 12
GPUS_PER_NODE = 8
SPARK_TOKENS_PER_S, SPARK_PARAMS = 12_820, 354.6e6
"""Published for a GB10 in bf16, batch 4 × 1024: tokens per second of a model of these parameters.
"""

Amount = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=1e-6, le=1, allow_inf_nan=False)]


class Rates(Frozen):
    """The inputs of every cost command, under their published names in lower case.

    The defaults are those of published cost arithmetic for a DGX Spark beside spot-priced cloud
    GPUs. ``target_scale`` and ``h100_speedup`` are constants there and inputs here.
    """

    h100_hourly_usd: Price = 2.50
    """Price of one rented H100 per hour, spot; ``handoff --spot`` has it too."""
    h200_hourly_usd: Price = 3.50
    b200_hourly_usd: Price = 2.25
    """Spot prices of B200 began there in March 2026 (lyceum.technology)."""
    h100_firm_hourly_usd: Price = 3.25
    """Price of one H100 per hour that is not taken away. It is the middle of the 2.49 to 3.99 that
    clouds asked on demand in early 2026 (pricegpu)."""
    h200_firm_hourly_usd: Price = 4.54
    """On demand in March 2026 (Spheron)."""
    b200_firm_hourly_usd: Price = 5.25
    """The middle of the 4.50 to 6.00 that specialized clouds asked on demand in March 2026
    (lyceum.technology)."""
    spark_kw: Price = 0.24
    """Power in kW that the desktop unit draws while it trains."""
    kwh_usd: Price = DEFAULT_KWH_USD
    """Price of a kilowatt-hour."""
    spark_capex_usd: Price = 5000.0
    """Price of the desktop unit."""
    spark_life_years: Amount = 1.5
    """Years over which the unit is written off, in use around the clock."""
    iter_seconds: Amount = 88.0
    """Seconds of one trial on the desktop unit; the published search has one for each iteration."""
    campaign_iters: Annotated[int, Field(gt=0, le=10**9)] = 100
    runs_per_iteration: Amount = RUNS_PER_ITERATION
    """Trials of a night for each iteration."""
    stress_runs: Amount = 8
    """Runs of a stress test: the three best and the baseline, on two seeds."""
    stress_steps: Amount = 1000
    """Steps of each, where a trial of ITER_SECONDS has 60."""
    final_node_hours: Amount = 168.0
    """Hours of the final run on a node of 8 H100."""
    wrong_pick_rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    """Chance that a final run booked without a search is wasted on a bad recipe. This is an
    assumption."""
    wrong_pick_rate_after: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.15
    """Chance that remains after search and long runs. This is an assumption: the published argument
    expects 10 to 20 % in its text, and uses none in its arithmetic."""
    target_scale: Amount = 60.0
    """Cost of an iteration at the target's scale, as a multiple of a proxy's."""
    h100_speedup: Amount = 1.0
    """Speed of an H100 in one iteration, as a multiple of the desktop unit's."""
    preemptions_per_day: Price = 0.0
    """Pre-emptions of rented GPUs per day; 0 for a firm booking."""
    checkpoint_hours: Amount = 1.0
    """Hours between checkpoints, if no launch plan says."""
    restart_hours: Price = 0.25
    """Hours from a pre-emption to the first new step."""
    spark_tflops: Annotated[Amount, Field(ge=1e-6)] = SPARK_TOKENS_PER_S * 6 * SPARK_PARAMS / 1e12
    """Training speed of a unit in TFLOP/s, 27.3; this counts 6 FLOPs per parameter and token."""
    spark_gib: Amount = 128e9 / 2**30
    """Memory of one unit in GiB, 119; units with half of it are sold too."""
    spark_scaling: Share = 1.0
    """Share of several units' summed speed that remains when they work together."""
    gpu_utilisation: Share = 0.40
    """Share of the data sheet's dense bf16 speed that a GPU reaches in training. This is an
    assumption: Llama 3 reports 38 to 43 % on H100 (arXiv 2407.21783, table 4)."""
    hours_per_month: Annotated[float, Field(gt=0, le=31 * 24)] = HOURS_PER_YEAR / MONTHS_PER_YEAR
    """Hours per month in which a machine is rented and paid for, or draws power."""

    @property
    def spark_amortized_hourly(self) -> float:
        """``capex / (life × 365.25 × 24)``, USD."""
        return self.spark_capex_usd / (self.spark_life_years * HOURS_PER_YEAR)

    @property
    def spark_life_months(self) -> float:
        return self.spark_life_years * MONTHS_PER_YEAR

    @property
    def spark_electricity_hourly(self) -> float:
        """``kW × USD per kWh``."""
        return self.spark_kw * self.kwh_usd

    @property
    def spark_total_hourly(self) -> float:
        return self.spark_amortized_hourly + self.spark_electricity_hourly

    @property
    def cloud_8xh100_hourly(self) -> float:
        return GPUS_PER_NODE * self.h100_hourly_usd


class _RatesEnvironment(BaseSettings, Rates):
    """Rates from the environment, under their published names: H100_HOURLY_USD and so on."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    kwh_usd: KwhPrice = DEFAULT_KWH_USD


def rate_variables() -> tuple[str, ...]:
    """Return the names of the variables that :func:`read_rates` reads."""
    return (*(name.upper() for name in Rates.model_fields), "AUTORESEARCH_USD_PER_KWH")


def read_rates(overrides: Mapping[str, str] | None = None) -> Rates:
    """Return the published defaults, overridden by the environment, and both by ``overrides``.

    :param overrides: by published name, in any case: ``{"KWH_USD": "0.3"}``.
    :raises SettingsError: naming the variable that is unknown or invalid.
    """
    chosen = {name.lower(): value for name, value in (overrides or {}).items()}
    for name in chosen:
        if name not in Rates.model_fields:
            known = [field.upper() for field in Rates.model_fields]
            raise SettingsError(f"there is no rate {name.upper()!r}{did_you_mean(name, known)}")
    try:
        read = _RatesEnvironment.model_validate(chosen)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        variable = str(problem["loc"][0]).upper()
        if variable == "KWH_USD":
            variable = KWH_NAMES
        said = problem["msg"].removeprefix("Input should be ").split(",")[0]
        raise SettingsError(
            f"{variable} is {str(problem['input'])!r:.60}, and should be {said}"
        ) from error
    return Rates(**read.model_dump())
