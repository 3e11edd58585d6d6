"""Compute a campaign's active time by the clock, and define what its search cost."""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AliasChoices, Field

from autoresearch.values import Frozen, NonNegative
from trajectory.rows import BaselineRow, IterationRow, RowOfOneRun

DEFAULT_KWH_USD = 0.13
Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
KwhPrice: TypeAlias = Annotated[
    Price, Field(validation_alias=AliasChoices("KWH_USD", "AUTORESEARCH_USD_PER_KWH"))
]
"""The one price of electricity, for a campaign's own bill and for every cost command. It is
KWH_USD, or AUTORESEARCH_USD_PER_KWH if KWH_USD is not set."""
KWH_NAMES = "KWH_USD (or AUTORESEARCH_USD_PER_KWH)"

RUNS_PER_ITERATION = 2.05
"""Trials of a night for each iteration: the baseline's seeds, the pairs that the judge asks for,
and the confirmation. 100 iterations took about 205."""

CLOCK_BACK_S = 1.0
"""Seconds by which a row may end before the row above it. Beyond that the clock was set back."""


@dataclass(slots=True)
class BusyTime:
    """Accumulates rows in the journal's order and returns the active time that each adds."""

    _spans: list[tuple[float, float]] = field(default_factory=list)
    """Disjoint, sorted intervals that the rows so far cover, in seconds since 1970."""
    _unplaced: list[tuple[float, float]] | None = field(default_factory=list)
    """Intervals of runs without a recorded place, until a row shows that there are several places;
    then None. A run that a kill interrupted and a later session resumed has no place, because it is
    unknown."""
    _latest_s: float = -math.inf
    """End of the newest row."""

    def added_s(self, row: BaselineRow | IterationRow | RowOfOneRun) -> float:
        """Return the seconds of this row that no earlier row covers. With one trial at a time,
        these are all its seconds.

        The first row that shows several places also subtracts what earlier runs counted twice. So
        the result may be negative.
        """
        if isinstance(row, IterationRow):
            wall_s, several = row.wall_s, row.lanes is not None
            if not several:
                return wall_s
        else:
            wall_s, several = row.trial.wall_s, row.trial.place is not None
        try:
            ended_s = datetime.fromisoformat(row.at).timestamp()
        except ValueError:  # only in an edited journal
            return wall_s
        if ended_s < self._latest_s - CLOCK_BACK_S:  # its times are not those of earlier rows
            self._spans.clear()
        self._latest_s = ended_s
        span = ended_s - wall_s, ended_s
        if several:
            added_s = self._cover(*span)
            unplaced, self._unplaced = self._unplaced or [], None
            twice_s = sum(end - begin - self._cover(begin, end) for begin, end in unplaced)
            return added_s - twice_s
        if self._unplaced is None:
            return self._cover(*span)
        self._unplaced.append(span)
        return wall_s

    def _cover(self, since_s: float, until_s: float) -> float:
        """Add an interval and return how many of its seconds were not yet covered."""
        spans = self._spans
        first = bisect_left(spans, since_s, key=lambda span: span[1])
        last = bisect_right(spans, until_s, key=lambda span: span[0])
        met = spans[first:last]
        covered_s = sum(max(0.0, min(until_s, end) - max(since_s, begin)) for begin, end in met)
        ends = [(since_s, until_s), *met]
        spans[first:last] = [(min(begin for begin, _ in ends), max(end for _, end in ends))]
        return max(0.0, until_s - since_s - covered_s)


HOUR_S = 3600.0


@dataclass(slots=True)
class LaneUse:
    """Share of the lanes' time that trials used, over the iterations with several lanes."""

    lanes: int = 0
    """Largest number of lanes."""
    lane_s: float = 0.0
    """Seconds of all lanes while the campaign was active."""
    busy_s: float = 0.0
    """Seconds of trials."""
    by_lane_s: dict[str, float] = field(default_factory=dict)
    """Seconds of trials by lane."""
    active_s: float = 0.0
    """Seconds in which the campaign was active."""
    _latest: deque[tuple[float, float, float]] = field(default_factory=deque)
    """Rows of the last hour: the time of each, and what it added to ``lane_s`` and ``busy_s``."""

    def add(self, row: IterationRow, active_s: float) -> None:
        """Add one row.

        :param active_s: seconds that the row adds to the campaign's active time.
        """
        if row.lanes is None:
            return
        self.lanes = max(self.lanes, row.lanes)
        lane_s, busy_s = row.lanes * active_s, sum(trial.wall_s for trial in row.trials)
        self.lane_s += lane_s
        self.busy_s += busy_s
        self.active_s += active_s
        for trial in row.trials:
            if trial.place is not None:
                lane = trial.place.lane
                self.by_lane_s[lane] = self.by_lane_s.get(lane, 0.0) + trial.wall_s
        with suppress(ValueError):  # only in an edited journal
            self._latest.append((datetime.fromisoformat(row.at).timestamp(), lane_s, busy_s))
        while self._latest and self._latest[0][0] < self._latest[-1][0] - HOUR_S:
            self._latest.popleft()

    @property
    def share_of_last_hour(self) -> float | None:
        """Share of the lanes' time in use, by the rows of the hour before the newest; None without
        any."""
        lane_s = sum(one for _, one, _ in self._latest)
        busy_s = sum(one for _, _, one in self._latest)
        return min(1.0, busy_s / lane_s) if lane_s > 0 else None

    def of_lanes(self) -> Iterator[tuple[str, float]]:
        """Yield each lane's name and the share of the campaign's active time in which trials ran on
        it."""
        for lane in sorted(self.by_lane_s, key=lambda name: (len(name), name)):
            if self.active_s > 0:
                yield lane, min(1.0, self.by_lane_s[lane] / self.active_s)

    @property
    def share(self) -> float | None:
        """Share of the lanes' time in use; None before several lanes were active."""
        return min(1.0, self.busy_s / self.lane_s) if self.lane_s > 0 else None


class Phase(Frozen):
    """Hours and money of one of the three phases of a large run's preparation."""

    name: Literal["search", "long runs", "cloud"]
    hours: NonNegative
    usd: NonNegative
    why: str
    """Where the figures are from."""


class SearchBill(Frozen):
    """Seconds, energy and money of a campaign's search, its long runs included.

    ``cost of use = electricity + write-off``, with ``electricity = kWh × USD per kWh`` and
    ``write-off = hours × capex / (life in years × 8,766)``.
    """

    seconds: NonNegative
    metered_s: NonNegative
    """Seconds whose energy was metered; an assumed power draw covers the rest."""
    kwh: NonNegative
    usd_per_kwh: NonNegative
    supposed_kw: NonNegative
    electricity_usd: NonNegative
    write_off_usd: NonNegative
    phases: tuple[Phase, ...] = ()
    """The search, the long runs, and the cloud run if it is known."""

    @property
    def usd(self) -> float:
        """The cost of use: electricity and write-off."""
        return self.electricity_usd + self.write_off_usd

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    def text(self) -> str:
        """Return the bill as one sentence without its period."""
        supposed = ""
        if self.metered_s < self.seconds:
            share = 1 - self.metered_s / self.seconds
            supposed = (
                f", {share:.0%} of the time unmetered and taken to draw {self.supposed_kw} kW"
            )
        return (
            f"cost of use {_usd(self.usd)}: {self.kwh:.3g} kWh at ${self.usd_per_kwh:g} is "
            f"{_usd(self.electricity_usd)}{supposed}; {self.hours:.3g} hours of the machine's "
            f"write-off are {_usd(self.write_off_usd)}"
        )


def _usd(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}"
