"""What a search took: as the rates suppose it, or as a campaign's own journal has it."""

from __future__ import annotations

from pathlib import Path

from agent.search.first_row import read_campaign_row
from agent.settings.rates import Rates
from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, NonNegative, NonNegativeInt
from trainer.spec import TrialOk
from trajectory.journal import read_rows
from trajectory.rows import BaselineRow, IterationRow, Row, RowOfOneRun
from trajectory.worked import Worked

WH_PER_KWH = 1000
SECONDS_PER_HOUR = 3600
SUPPOSED = "rates"


class Usage(Frozen):
    """Seconds and energy of a search. Long runs (the stress test, the ladder) are counted apart
    from it."""

    source: str
    """:data:`SUPPOSED`, or the campaign's directory."""
    machine: str | None = None
    """The device that trained, by its own name."""
    iterations: NonNegativeInt
    iterations_s: NonNegative
    """The iterations, from proposal to decision."""
    iterations_kwh: NonNegative
    baseline_s: NonNegative = 0
    baseline_kwh: NonNegative = 0
    stress_runs: NonNegativeInt = 0
    stress_s: NonNegative = 0
    stress_kwh: NonNegative = 0
    metered_s: NonNegative = 0
    """The part of all these seconds whose energy was measured; in the rest it drew SPARK_KW."""

    @property
    def iter_s(self) -> float:
        """Mean seconds of one; 0 where there was none."""
        return self.iterations_s / self.iterations if self.iterations else 0.0

    @property
    def seconds(self) -> float:
        """All its seconds, the long runs' included."""
        return self.baseline_s + self.iterations_s + self.stress_s

    @property
    def kwh(self) -> float:
        return self.baseline_kwh + self.iterations_kwh + self.stress_kwh

    def lines(self) -> tuple[str, ...]:
        """For a person: whose seconds and energy these are."""
        if self.source == SUPPOSED:
            return ("source    the rates: no campaign was measured (see --campaign)",)
        runs = (
            f", long runs ({self.stress_runs}) {self.stress_s:,.1f} s" if self.stress_runs else ""
        )
        return (
            f"source    {self.source} · {self.machine or 'unknown machine'}",
            f"measured  {self.seconds:,.1f} s: {self.iterations} iterations "
            f"{self.iterations_s:,.1f} s, baseline {self.baseline_s:,.1f} s{runs}",
            f"energy    {self.kwh:.4g} kWh, of it metered {self.metered_s:,.0f} of "
            f"{self.seconds:,.0f} s",
        )

    @classmethod
    def supposed(cls, rates: Rates) -> Usage:
        """``CAMPAIGN_ITERS`` iterations of ``ITER_SECONDS`` at ``SPARK_KW``."""
        seconds = rates.campaign_iters * rates.iter_seconds
        return cls(
            source=SUPPOSED,
            iterations=rates.campaign_iters,
            iterations_s=seconds,
            iterations_kwh=seconds / SECONDS_PER_HOUR * rates.spark_kw,
        )


def measured_usage(directory: Path, rates: Rates) -> Usage:
    """What the campaign in this directory has taken so far, by its own rows.

    :raises CampaignError: where there is none, or none with a whole iteration.
    """
    if read_campaign_row(directory) is None:
        raise CampaignError(
            f"{directory} holds no campaign (no {JOURNAL_FILE}, or an empty one); name one with "
            "--campaign"
        )
    count = UsageCount(rates.spark_kw)
    for row in read_rows(directory / JOURNAL_FILE):
        count.add(row)
    if count.iterations == 0:
        raise CampaignError(
            f"{directory} has no finished iteration to take seconds from; go on with: autoresearch "
            f"loop --campaign {directory}"
        )
    return count.usage(str(directory))


class UsageCount:
    """Adds rows up."""

    def __init__(self, spark_kw: float) -> None:
        self._spark_kw = spark_kw
        self._worked = Worked()
        self.iterations = 0
        self.stress_runs = 0
        self.metered_s = 0.0
        self.machine: str | None = None
        self.seconds = dict.fromkeys(("baseline", "iteration", "stress"), 0.0)
        self.kwh = dict.fromkeys(self.seconds, 0.0)

    def add(self, row: Row) -> None:
        if isinstance(row, BaselineRow):
            result = row.trial.result
            measured = result if isinstance(result, TrialOk) else None
            if measured is not None:
                self.machine = measured.device
            self._take(
                row.kind, self._worked.added_s(row), measured.energy_wh if measured else None
            )
        elif isinstance(row, IterationRow):
            self.iterations += 1
            self._take(row.kind, self._worked.added_s(row), row.energy_wh)
        elif isinstance(row, RowOfOneRun):
            # All are runs outside the search, and told as one.
            self.stress_runs += 1
            self._take("stress", self._worked.added_s(row), row.energy_wh)

    def usage(self, source: str) -> Usage:
        """What the rows so far add up to."""
        return Usage(
            source=source,
            machine=self.machine,
            iterations=self.iterations,
            iterations_s=self.seconds["iteration"],
            iterations_kwh=self.kwh["iteration"],
            baseline_s=self.seconds["baseline"],
            baseline_kwh=self.kwh["baseline"],
            stress_runs=self.stress_runs,
            stress_s=self.seconds["stress"],
            stress_kwh=self.kwh["stress"],
            metered_s=self.metered_s,
        )

    def _take(self, kind: str, wall_s: float, measured_wh: float | None) -> None:
        self.seconds[kind] += wall_s
        if measured_wh is None:
            self.kwh[kind] += wall_s / SECONDS_PER_HOUR * self._spark_kw
        else:
            self.kwh[kind] += measured_wh / WH_PER_KWH
            self.metered_s += wall_s
