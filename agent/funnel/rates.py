"""What machines and power cost, and what an argument about them takes for granted."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.spec import Frozen

HOURS_PER_YEAR = 365.25 * 24
GPUS_PER_NODE = 8
DEFAULT_KWH_USD = 0.13

Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Rates(Frozen):
    """The inputs of every money command, under their published names in lower case.

    The defaults are those of published cost arithmetic for a DGX Spark beside spot-priced cloud
    GPUs; ``target_scale`` and ``h100_speedup`` are constants there and inputs here.
    """

    h100_hourly_usd: Price = 2.50
    """One rented H100 for an hour."""
    h200_hourly_usd: Price = 3.50
    """One rented H200 for an hour."""
    spark_kw: Price = 0.24
    """Draw of the desktop unit while it trains."""
    kwh_usd: Price = DEFAULT_KWH_USD
    """A kilowatt-hour."""
    spark_capex_usd: Price = 5000.0
    """The desktop unit."""
    spark_life_years: Amount = 1.5
    """Over which it is written off, in use around the clock."""
    iter_seconds: Amount = 88.0
    """One iteration on the desktop unit."""
    campaign_iters: Annotated[int, Field(gt=0, le=10**9)] = 100
    final_node_hours: Amount = 168.0
    """The final run, on a node of 8 H100."""
    wrong_pick_rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    """Chance that a final run booked without a search is wasted on a bad recipe."""
    target_scale: Amount = 60.0
    """How many times a proxy's iteration one at the target's scale costs."""
    h100_speedup: Amount = 1.0
    """How many times as fast as the desktop unit an H100 goes through one iteration."""

    @property
    def spark_amortized_hourly(self) -> float:
        """``capex / (life × 365.25 × 24)``, USD."""
        return self.spark_capex_usd / (self.spark_life_years * HOURS_PER_YEAR)

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
