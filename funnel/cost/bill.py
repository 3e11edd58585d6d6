"""One piece of work, paid for on the desk and in the cloud."""

from __future__ import annotations

from dataclasses import dataclass

from agent.settings.rates import GPUS_PER_NODE, Rates
from funnel.cost.figures import Figure, Unit
from funnel.cost.usage import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class CloudKeys:
    """The published keys of what the cloud would take, one set a section."""

    single: str
    node: str
    node_at_target: str
    names_scale: bool
    """Whether the published key at the target's scale ends in its factor."""

    def at_target(self, rates: Rates) -> str:
        """Return the published key; one that names its factor only where the factor is that one."""
        published = self.names_scale and rates.target_scale == PUBLISHED_TARGET_SCALE
        suffix = f"_{PUBLISHED_TARGET_SCALE}x" if published else ""
        return self.node_at_target + suffix


PUBLISHED_TARGET_SCALE = 60
ITER_KEYS = CloudKeys("h100_single", "h100_8gpu_node", "h100_8gpu_node_target_scale", True)
CAMPAIGN_KEYS = CloudKeys(
    "h100_single_proxy", "h100_8gpu_node_proxy", "h100_8gpu_node_target_scale", False
)


@dataclass(frozen=True, slots=True)
class Bill:
    """The same work paid for in five ways, USD."""

    seconds: float
    """On the desk."""
    kwh: float
    electricity: float
    amortized: float
    h100: float
    node: float
    node_at_target: float

    @classmethod
    def of(cls, rates: Rates, seconds: float, kwh: float) -> Bill:
        hours = seconds / SECONDS_PER_HOUR
        h100 = hours / rates.h100_speedup * rates.h100_hourly_usd
        node = GPUS_PER_NODE * h100
        return cls(
            seconds=seconds,
            kwh=kwh,
            electricity=kwh * rates.kwh_usd,
            amortized=hours * rates.spark_amortized_hourly,
            h100=h100,
            node=node,
            node_at_target=node * rates.target_scale,
        )

    @property
    def desk_total(self) -> float:
        """``hours × capex / life + kWh × rate``."""
        return self.electricity + self.amortized

    def gpu_hours(self, rates: Rates) -> float:
        """Hours that one rented GPU would have taken."""
        return self.seconds / SECONDS_PER_HOUR / rates.h100_speedup

    def gpu_formula(self, rates: Rates) -> str:
        faster = "" if rates.h100_speedup == 1 else f" / {rates.h100_speedup:g} times as fast"
        return f"{self.seconds:,.6g} s{faster}"

    def figures(self, rates: Rates, keys: CloudKeys, unit: Unit) -> tuple[Figure, ...]:
        scale = f"{rates.target_scale:g}"
        unit_cost = f"${rates.spark_capex_usd:,.0f} over {rates.spark_life_years:g} years"
        lines = (
            (
                "spark_electricity_only",
                "desk, electricity",
                self.electricity,
                f"{self.kwh:.4g} kWh × ${rates.kwh_usd:g}/kWh",
            ),
            (
                "spark_total_cost_of_use",
                "desk, cost of use",
                self.desk_total,
                f"electricity + {self.seconds:,.6g} s of {unit_cost}",
            ),
            (
                keys.single,
                "one H100",
                self.h100,
                f"{self.gpu_formula(rates)} × ${rates.h100_hourly_usd:g}/h",
            ),
            (keys.node, "a node of 8 H100", self.node, f"{GPUS_PER_NODE} × one H100"),
            (
                keys.at_target(rates),
                f"the node at {scale}× the scale",
                self.node_at_target,
                f"{scale} × the node",
            ),
        )
        return tuple(Figure(key, label, usd, unit, formula) for key, label, usd, formula in lines)
