"""The one bill: what the search cost, what the run will, and what a wrong pick would.

``cost``, the launch plan and the report read it here and nowhere else, so they cannot name two
prices. Of the run, with λ pre-emptions an hour, checkpoints every τ hours and R hours to be back:

    share lost     = λ (τ / 2 + R)
    expected hours = hours / (1 − share lost)

as each pre-emption loses half an interval on average and the restart (Young 1974; Daly 2006,
doi:10.1016/j.future.2004.11.016, to first order). Of the risk, with p the chance that a run booked
blind is wasted, q the chance that is left after the search, F the run and S the search:

    expected savings = (p − q) F − S

p and q are assumptions under their names. What was measured stands beside them
(:mod:`funnel.cost.measured`) and is not turned into them: no run on a desk has shown how often a
booking is wasted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from agent.settings.rates import GPUS_PER_NODE, Rates
from autoresearch.errors import HandoffError, SettingsError
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, explain
from funnel.cost.bill import Bill
from funnel.cost.measured import Measured
from funnel.cost.usage import Usage, UsageCount
from trajectory.rows import Row
from trajectory.search_bill import SearchBill

HOURS_PER_DAY = 24
MOST_LOST = 0.9
"""The largest share of the time that may be lost before a run is called impossible."""


class Preemption(Frozen):
    """How often rented GPUs are taken away, and what that costs each time."""

    per_day: NonNegative = 0.0
    checkpoint_hours: Positive = 1.0
    """Between checkpoints."""
    restart_hours: NonNegative = 0.25
    """From the loss to the first new step."""
    pause_share: NonNegative = 0.0
    """Of the time, that saving holds the training up."""

    @property
    def share_lost(self) -> float:
        """λ (τ / 2 + R), and what saving takes."""
        lost = self.per_day / HOURS_PER_DAY * (self.checkpoint_hours / 2 + self.restart_hours)
        return lost + self.pause_share

    def expected_hours(self, hours: float) -> float:
        """
        :raises SettingsError: where hardly any of the time would be left.
        """
        lost = self.share_lost
        if lost > MOST_LOST:
            raise SettingsError(
                f"PREEMPTIONS_PER_DAY is {self.per_day:g}, and with checkpoints every "
                f"{self.checkpoint_hours:g} h and {self.restart_hours:g} h to restart {lost:.0%} "
                "of the time would be lost; save more often, or rent what is not taken away"
            )
        return hours / (1 - lost)


class CloudRun(Frozen):
    """The rented run."""

    source: str
    """What says so: the rates, or a launch plan's path."""
    gpu: str
    gpus: PositiveInt
    gpu_hourly_usd: NonNegative
    hours: Positive
    """That it would take undisturbed."""
    preemption: Preemption = Preemption()

    @classmethod
    def supposed(cls, rates: Rates) -> CloudRun:
        """A node of 8 H100 for FINAL_NODE_HOURS."""
        return cls(
            source="the rates",
            gpu="h100",
            gpus=GPUS_PER_NODE,
            gpu_hourly_usd=rates.h100_hourly_usd,
            hours=rates.final_node_hours,
            preemption=preemption_of(rates),
        )

    @property
    def expected_hours(self) -> float:
        """Pre-emptions included."""
        return self.preemption.expected_hours(self.hours)

    @property
    def hourly_usd(self) -> float:
        """All GPUs together."""
        return self.gpus * self.gpu_hourly_usd

    @property
    def undisturbed_usd(self) -> float:
        return self.hours * self.hourly_usd

    @property
    def usd(self) -> float:
        """What it is expected to cost, pre-emptions included."""
        return self.expected_hours * self.hourly_usd

    @property
    def day_usd(self) -> float:
        """What 24 hours cost."""
        return HOURS_PER_DAY * self.hourly_usd

    @property
    def worth_paying_hourly_usd(self) -> float:
        """What a GPU that is never taken away may cost an hour to come to the same."""
        return self.gpu_hourly_usd * self.expected_hours / self.hours


class WholeBill(Frozen):
    """Search, run and risk, in USD."""

    search: SearchBill
    run: CloudRun
    wrong_pick_rate: Annotated[float, Field(ge=0, le=1)]
    """p, of a run booked without a search: an assumption."""
    wrong_pick_rate_after: Annotated[float, Field(ge=0, le=1)]
    """q, that is left after search and long runs: an assumption."""
    measured: Measured = Measured()
    """What was measured, beside them."""

    @property
    def expected_loss_usd(self) -> float:
        """p F: of booking blind."""
        return self.wrong_pick_rate * self.run.usd

    @property
    def risk_left_usd(self) -> float:
        """q F."""
        return self.wrong_pick_rate_after * self.run.usd

    @property
    def expected_savings_usd(self) -> float:
        """(p − q) F − S."""
        return self.expected_loss_usd - self.risk_left_usd - self.search.usd

    def as_json(self) -> dict[str, object]:
        """Everything, what follows from it included."""
        run = self.run
        return {
            "search": self.search.model_dump(mode="json") | {"usd": self.search.usd},
            "run": run.model_dump(mode="json")
            | {"expected_hours": run.expected_hours, "usd": run.usd, "day_usd": run.day_usd},
            "wrong_pick_rate": self.wrong_pick_rate,
            "wrong_pick_rate_after": self.wrong_pick_rate_after,
            "expected_loss_usd": self.expected_loss_usd,
            "risk_left_usd": self.risk_left_usd,
            "expected_savings_usd": self.expected_savings_usd,
            "measured": self.measured.model_dump(mode="json"),
        }


def search_bill(rates: Rates, usage: Usage) -> SearchBill:
    """What a search took, at these rates."""
    cost = Bill.of(rates, usage.seconds, usage.kwh)
    return SearchBill(
        seconds=usage.seconds,
        metered_s=usage.metered_s,
        kwh=usage.kwh,
        usd_per_kwh=rates.kwh_usd,
        supposed_kw=rates.spark_kw,
        electricity_usd=cost.electricity,
        write_off_usd=cost.amortized,
    )


class RatedMeter:
    """The bill of rows as they go by: a :class:`~trajectory.search_bill.SearchMeter`."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._count = UsageCount(rates.spark_kw)

    def add(self, row: Row) -> None:
        self._count.add(row)

    def bill(self) -> SearchBill:
        return search_bill(self._rates, self._count.usage("the journal"))


def whole_bill(rates: Rates, usage: Usage, run: CloudRun, measured: Measured) -> WholeBill:
    """All of it, at these rates."""
    return WholeBill(
        search=search_bill(rates, usage),
        run=run,
        wrong_pick_rate=rates.wrong_pick_rate,
        wrong_pick_rate_after=rates.wrong_pick_rate_after,
        measured=measured,
    )


def preemption_of(rates: Rates, checkpoint_hours: float | None = None) -> Preemption:
    """:param checkpoint_hours: a plan's; None: the rates'."""
    return Preemption(
        per_day=rates.preemptions_per_day,
        checkpoint_hours=checkpoint_hours or rates.checkpoint_hours,
        restart_hours=rates.restart_hours,
    )


class _Plan(Frozen):
    """What of a plan.json is its run."""

    campaign: str
    run: CloudRun


def planned_run(plan_file: Path) -> tuple[str, CloudRun]:
    """The id of the campaign that a launch plan is of, and its run as it is billed there.

    :raises HandoffError: where the file is no launch plan of this version.
    """
    try:
        plan = json.loads(plan_file.read_bytes())
        run = plan["money"]["run"]
        known = {name: run[name] for name in CloudRun.model_fields} | {"source": str(plan_file)}
        read = _Plan.model_validate({"campaign": plan["campaign"]["id"], "run": known})
    except OSError as error:
        raise HandoffError(
            f"{plan_file} cannot be read ({error.strerror}); name a launch plan's directory"
        ) from error
    except ValidationError as error:
        raise HandoffError(
            f"{plan_file} has no bill that can be read: {explain(error)}; write the plan again with"
            " autoresearch handoff"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise HandoffError(
            f"{plan_file} is no launch plan with a bill ({error!r:.80}); write it again with "
            "autoresearch handoff"
        ) from error
    return read.campaign, read.run
