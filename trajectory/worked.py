"""How long a campaign was at work, by the clock, where rows overlap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trajectory.rows import BaselineRow, IterationRow, RowOfOneRun


@dataclass(slots=True)
class Worked:
    """Told the rows in the journal's order, says what each adds."""

    _until_s: float = 0.0
    """When the latest row of several lanes ended: what it covers counts once."""

    def added_s(self, row: BaselineRow | IterationRow | RowOfOneRun) -> float:
        """Seconds of this row that no earlier one covers. Where one trial runs at a time that is
        all of them."""
        if isinstance(row, IterationRow):
            wall_s, several = row.wall_s, row.lanes is not None
        else:
            wall_s, several = row.trial.wall_s, row.trial.place is not None
        if not several:
            return wall_s
        try:
            ended_s = datetime.fromisoformat(row.at).timestamp()
        except ValueError:  # only an edited journal has such a one
            return wall_s
        added_s = min(wall_s, max(0.0, ended_s - self._until_s))
        self._until_s = max(self._until_s, ended_s)
        return added_s


@dataclass(slots=True)
class LaneUse:
    """How much of the lanes' time trials took, over the iterations that had several."""

    lanes: int = 0
    """The most there were."""
    lane_s: float = 0.0
    """Seconds of every lane in which the campaign was at work."""
    busy_s: float = 0.0
    """Seconds of trials."""

    def add(self, row: IterationRow, worked_s: float) -> None:
        """:param worked_s: what the row adds to the campaign's time at work."""
        if row.lanes is None:
            return
        self.lanes = max(self.lanes, row.lanes)
        self.lane_s += row.lanes * worked_s
        self.busy_s += sum(trial.wall_s for trial in row.trials)

    @property
    def share(self) -> float | None:
        """In use; None before several lanes were at work."""
        return min(1.0, self.busy_s / self.lane_s) if self.lane_s > 0 else None
