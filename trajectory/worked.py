"""How long a campaign was at work, by the clock, where rows overlap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trajectory.rows import BaselineRow, IterationRow


@dataclass(slots=True)
class Worked:
    """Told the rows in the journal's order, says what each adds."""

    _until_s: float = 0.0
    """When the latest row of several lanes ended: what it covers counts once."""

    def added_s(self, row: BaselineRow | IterationRow) -> float:
        """Seconds of this row that no earlier one covers. Where one trial runs at a time that is
        all of them."""
        if isinstance(row, BaselineRow):
            wall_s, several = row.trial.wall_s, row.trial.place is not None
        else:
            wall_s, several = row.wall_s, row.lanes is not None
        if not several:
            return wall_s
        ended_s = datetime.fromisoformat(row.at).timestamp()
        added_s = min(wall_s, max(0.0, ended_s - self._until_s))
        self._until_s = max(self._until_s, ended_s)
        return added_s
