"""Compute the bill: the cost of the search, of the run, and of a wrong pick.

``cost``, the launch plan and the report all read it here, so they cannot show different prices.
With λ pre-emptions an hour, checkpoints every τ hours and R hours to restart, the run takes

    share lost     = λ (τ / 2 + R)
    expected hours = hours / (1 − share lost)

because each pre-emption loses half an interval on average, and the restart (Young 1974; Daly 2006,
doi:10.1016/j.future.2004.11.016, to first order). With p the chance that a run booked blind is
wasted, q the chance that remains after the search, F the run and S the search,

    expected savings = (p − q) F − S

p and q are assumptions under their names. The measured quantities stand beside them
(:mod:`funnel.cost.measured`) and are not converted into them: no run on a desk has shown how often
a booking is wasted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from autoresearch.errors import HandoffError, SettingsError
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, explain
from funnel.cost.measured import SUPPOSED, SearchEvidence, SearchUsage
from funnel.cost.rates import GPUS_PER_NODE, Rates
from trajectory.spending import Phase, SearchBill

HOURS_PER_DAY = 24
USUAL_PLAN = Path("handoff/plan.json")
SHORT_STEPS = 60
"""Steps of a usual trial."""
MOST_LOST = 0.9
"""Largest share of the time that may be lost; beyond it a run is called impossible."""
SUPPOSED_RUN = "the rates"


class Preemption(Frozen):
    """Frequency of pre-emptions of rented GPUs, and the cost of each."""

    per_day: NonNegative = 0.0
    checkpoint_hours: Positive = 1.0
    """Hours between checkpoints."""
    restart_hours: NonNegative = 0.25
    """Hours from a pre-emption to the first new step."""
    pause_share: NonNegative = 0.0
    """Share of the time for which saving pauses the training."""

    @property
    def share_lost(self) -> float:
        """Share of the time lost: λ (τ / 2 + R), plus the pauses for saving."""
        lost = self.per_day / HOURS_PER_DAY * (self.checkpoint_hours / 2 + self.restart_hours)
        return lost + self.pause_share

    def expected_hours(self, hours: float) -> float:
        """Return the hours that a run takes, including pre-emptions.

        :raises SettingsError: if hardly any of the time would remain.
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
    """:data:`SUPPOSED_RUN`, or a launch plan's path."""
    gpu: str
    gpus: PositiveInt
    gpu_hourly_usd: NonNegative
    hours: Positive
    """Hours without pre-emptions."""
    preemption: Preemption = Preemption()

    @classmethod
    def supposed(cls, rates: Rates) -> CloudRun:
        """Assume a node of 8 H100 for FINAL_NODE_HOURS."""
        return cls(
            source=SUPPOSED_RUN,
            gpu="h100",
            gpus=GPUS_PER_NODE,
            gpu_hourly_usd=rates.h100_hourly_usd,
            hours=rates.final_node_hours,
            preemption=Preemption(
                per_day=rates.preemptions_per_day,
                checkpoint_hours=rates.checkpoint_hours,
                restart_hours=rates.restart_hours,
            ),
        )

    @property
    def expected_hours(self) -> float:
        """Hours including pre-emptions."""
        return self.preemption.expected_hours(self.hours)

    @property
    def hourly_usd(self) -> float:
        """Price per hour of all GPUs together."""
        return self.gpus * self.gpu_hourly_usd

    @property
    def undisturbed_usd(self) -> float:
        return self.hours * self.hourly_usd

    @property
    def day_usd(self) -> float:
        """The cost of 24 hours."""
        return HOURS_PER_DAY * self.hourly_usd

    @property
    def usd(self) -> float:
        """Expected cost, including pre-emptions."""
        return self.expected_hours * self.hourly_usd

    @property
    def firm_hourly_usd(self) -> float:
        """Price per hour at which a GPU without pre-emptions would cost the same."""
        return self.gpu_hourly_usd * self.expected_hours / self.hours


class Bill(Frozen):
    """Search, run and risk, in USD."""

    search: SearchBill
    run: CloudRun
    wrong_pick_rate: Annotated[float, Field(ge=0, le=1)]
    """p, the chance that a run booked without a search is wasted; an assumption."""
    wrong_pick_rate_after: Annotated[float, Field(ge=0, le=1)]
    """q, the chance that remains after search and long runs; an assumption."""
    measured: SearchEvidence = SearchEvidence()
    """Measured quantities, beside the assumptions."""

    @property
    def expected_loss_usd(self) -> float:
        """Expected loss of booking blind: p F."""
        return self.wrong_pick_rate * self.run.usd

    @property
    def risk_left_usd(self) -> float:
        """Expected loss that remains after the search: q F."""
        return self.wrong_pick_rate_after * self.run.usd

    @property
    def expected_savings_usd(self) -> float:
        """Expected savings: (p − q) F − S."""
        return self.expected_loss_usd - self.risk_left_usd - self.search.usd

    def as_json(self) -> dict[str, object]:
        """Return the fields and the figures derived from them."""
        run = self.run
        names = ("expected_hours", "usd", "day_usd")
        return {
            **self.model_dump(mode="json"),
            "search": self.search.model_dump(mode="json") | {"usd": self.search.usd},
            "run": run.model_dump(mode="json") | {n: getattr(run, n) for n in names},
            "expected_loss_usd": self.expected_loss_usd,
            "risk_left_usd": self.risk_left_usd,
            "expected_savings_usd": self.expected_savings_usd,
        }


def make_bill(
    rates: Rates,
    usage: SearchUsage,
    run: CloudRun | None = None,
    measured: SearchEvidence | None = None,
) -> Bill:
    """Price a search and its run.

    :param run: the run of a launch plan; None for the one that the rates assume.
    :param measured: measured quantities on the search's worth.
    """
    return Bill(
        search=search_bill(rates, usage, run or CloudRun.supposed(rates)),
        run=run or CloudRun.supposed(rates),
        wrong_pick_rate=rates.wrong_pick_rate,
        wrong_pick_rate_after=rates.wrong_pick_rate_after,
        measured=measured or SearchEvidence(),
    )


def search_bill(rates: Rates, usage: SearchUsage, run: CloudRun | None = None) -> SearchBill:
    """Price a search.

    :param run: the cloud run that it prepares, for the phases; None if it is unknown.
    """
    return SearchBill(
        phases=tuple(_phases(rates, usage, run)),
        seconds=usage.seconds,
        metered_s=usage.metered_s,
        kwh=usage.kwh,
        usd_per_kwh=rates.kwh_usd,
        supposed_kw=rates.spark_kw,
        electricity_usd=usage.kwh * rates.kwh_usd,
        write_off_usd=usage.seconds / 3600 * rates.spark_amortized_hourly,
    )


def use_usd(rates: Rates, seconds: float, kwh: float | None = None) -> float:
    """Return the cost of using a unit: electricity and write-off.

    :param kwh: metered energy; None: by SPARK_KW.
    """
    hours = seconds / 3600
    drawn = hours * rates.spark_kw if kwh is None else kwh
    return drawn * rates.kwh_usd + hours * rates.spark_amortized_hourly


def _phases(rates: Rates, usage: SearchUsage, run: CloudRun | None) -> Iterator[Phase]:
    search_s, long_s = usage.baseline_s + usage.iterations_s, usage.stress_s
    search_kwh, long_kwh = usage.baseline_kwh + usage.iterations_kwh, usage.stress_kwh
    why = f"{usage.iterations} iterations", f"{usage.stress_runs} runs"
    if usage.source == SUPPOSED:
        runs = usage.iterations * rates.runs_per_iteration
        search_s = runs * rates.iter_seconds
        long_s = rates.stress_runs * rates.stress_steps / SHORT_STEPS * rates.iter_seconds
        search_kwh, long_kwh = (s / 3600 * rates.spark_kw for s in (search_s, long_s))
        why = (
            f"{runs:,.0f} trials of {rates.iter_seconds:g} s for {usage.iterations} iterations: "
            "baseline, pairs, confirmation",
            f"{rates.stress_runs:g} runs of {rates.stress_steps:g} steps, where a trial has "
            f"{SHORT_STEPS}",
        )
    for name, seconds, kwh, said in zip(
        ("search", "long runs"), (search_s, long_s), (search_kwh, long_kwh), why, strict=True
    ):
        usd = use_usd(rates, seconds, kwh)
        yield Phase(name=name, hours=seconds / 3600, usd=usd, why=said)
    if run is not None:
        said = f"{run.gpus} {run.gpu.upper()} at ${run.gpu_hourly_usd:g}/h"
        yield Phase(name="cloud", hours=run.expected_hours, usd=run.usd, why=said)


def plan_of(campaign_id: str | None, plan_file: Path = USUAL_PLAN) -> CloudRun | None:
    """Return the run of the usual launch plan, if there is one of this campaign, or of any if none
    is given."""
    if not plan_file.exists():
        return None
    planned_for, run = planned_run(plan_file)
    return run if campaign_id in {None, planned_for} else None


def planned_run(plan_file: Path) -> tuple[str, CloudRun]:
    """Return the id of a launch plan's campaign, and the plan's billed run.

    :raises HandoffError: if the file is not a launch plan of this version.
    """
    try:
        plan = json.loads(plan_file.read_bytes())
        run, campaign = plan["money"]["run"], str(plan["campaign"]["id"])
        known = {name: run[name] for name in CloudRun.model_fields} | {"source": str(plan_file)}
        return campaign, CloudRun.model_validate(known)
    except OSError as error:
        raise HandoffError(
            f"{plan_file} cannot be read ({error.strerror}); give a launch plan's directory"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        why = explain(error) if isinstance(error, ValidationError) else f"{error!r:.80}"
        raise HandoffError(
            f"{plan_file} is not a launch plan with a bill ({why}); write it again with "
            "autoresearch handoff"
        ) from error
