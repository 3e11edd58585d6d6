"""How long a campaign was at work, by the clock, where rows overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from trajectory.rows import BaselineRow, IterationRow, RowOfOneRun


@dataclass(slots=True)
class Worked:
    """Told the rows in the journal's order, says what each adds."""

    _spans: list[tuple[float, float]] = field(default_factory=list)
    """What the rows so far cover, in seconds since 1970: disjoint, and in order."""
    _unplaced: list[tuple[float, float]] | None = field(default_factory=list)
    """Of runs that say no place, while no row has said that there are several; then None. A run
    that a kill left and a later sitting took up says none, for nobody knows where it was."""

    def added_s(self, row: BaselineRow | IterationRow | RowOfOneRun) -> float:
        """Seconds of this row that no earlier one covers. Where one trial runs at a time that is
        all of them.

        The first row that says there are several also takes back what the runs before it were
        counted too much, so it may add less than nothing.
        """
        if isinstance(row, IterationRow):
            of_run, wall_s, several = False, row.wall_s, row.lanes is not None
        else:
            of_run, wall_s, several = True, row.trial.wall_s, row.trial.place is not None
        try:
            ended_s = datetime.fromisoformat(row.at).timestamp()
        except ValueError:  # only an edited journal has such a one
            return wall_s
        span = ended_s - wall_s, ended_s
        if several:
            return self._cover(*span) - self._counted_twice_s()
        if not of_run:
            return wall_s
        if self._unplaced is None:
            return self._cover(*span)
        self._unplaced.append(span)
        return wall_s

    def _counted_twice_s(self) -> float:
        """Of the runs before it was known that there are several."""
        unplaced, self._unplaced = self._unplaced or [], None
        return sum(
            until_s - since_s - self._cover(since_s, until_s) for since_s, until_s in unplaced
        )

    def _cover(self, since_s: float, until_s: float) -> float:
        """Take this span in; how much of it was not covered."""
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
    """How much of the lanes' time trials took, over the iterations that had several."""

    lanes: int = 0
    """The most there were."""
    lane_s: float = 0.0
    """Seconds of every lane in which the campaign was at work."""
    busy_s: float = 0.0
    """Seconds of trials."""
    by_lane_s: dict[str, float] = field(default_factory=dict)
    """Of those, by the lane that they were on."""
    worked_s: float = 0.0
    """Seconds in which the campaign was at work."""
    _latest: deque[tuple[float, float, float]] = field(default_factory=deque)
    """Of the rows of the last hour: when, and what each added to the other two."""

    def add(self, row: IterationRow, worked_s: float) -> None:
        """:param worked_s: what the row adds to the campaign's time at work."""
        if row.lanes is None:
            return
        self.lanes = max(self.lanes, row.lanes)
        lane_s, busy_s = row.lanes * worked_s, sum(trial.wall_s for trial in row.trials)
        self.lane_s += lane_s
        self.busy_s += busy_s
        self.worked_s += worked_s
        for trial in row.trials:
            if trial.place is not None:
                lane = trial.place.lane
                self.by_lane_s[lane] = self.by_lane_s.get(lane, 0.0) + trial.wall_s
        with suppress(ValueError):  # only an edited journal has such a moment
            self._latest.append((datetime.fromisoformat(row.at).timestamp(), lane_s, busy_s))
        while self._latest and self._latest[0][0] < self._latest[-1][0] - HOUR_S:
            self._latest.popleft()

    @property
    def share_of_last_hour(self) -> float | None:
        """In use, by the rows of the hour before the newest."""
        lane_s = sum(one for _, one, _ in self._latest)
        busy_s = sum(one for _, _, one in self._latest)
        return min(1.0, busy_s / lane_s) if lane_s > 0 else None

    def of_lanes(self) -> Iterator[tuple[str, float]]:
        """Every lane, by name, and the share of the campaign's time at work that trials took on
        it."""
        for lane in sorted(self.by_lane_s, key=lambda name: (len(name), name)):
            if self.worked_s > 0:
                yield lane, min(1.0, self.by_lane_s[lane] / self.worked_s)

    @property
    def share(self) -> float | None:
        """In use; None before several lanes were at work."""
        return min(1.0, self.busy_s / self.lane_s) if self.lane_s > 0 else None
