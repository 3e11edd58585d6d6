"""Define how far a campaign goes: iterations, trials or hours, whichever is reached first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from autoresearch.errors import SettingsError
from autoresearch.words import counted
from trajectory.busy_time import BusyTime
from trajectory.rows import BaselineRow, IterationRow, Row

DEFAULT_ITERATIONS = 100


@dataclass(slots=True)
class Work:
    """Work of a campaign so far, over all its sessions."""

    iterations: int = 0
    trials: int = 0
    """Finished short runs, the baseline's included."""
    hours: float = 0.0
    """Wall time of iterations and the baseline, without pauses and work that a stop cut off."""
    _busy: BusyTime = field(default_factory=BusyTime)
    _seen: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Sum up a journal."""
        work = cls()
        for row in rows:
            work.add(row)
        return work

    def add(self, row: Row) -> None:
        """Add one row."""
        if isinstance(row, BaselineRow):
            self.trials += 1
            self.hours += self._busy.added_s(row) / 3600
        elif isinstance(row, IterationRow) and row.iter not in self._seen:
            self._seen.add(row.iter)  # a line duplicated by an editor is not work
            self.iterations += 1
            self.trials += len(row.trials)
            self.hours += self._busy.added_s(row) / 3600


@dataclass(frozen=True, slots=True)
class Goal:
    """Total to reach, earlier sessions included; a part that is None does not end the campaign.

    The goal is checked before an iteration starts, so trials and hours may overshoot by the races
    then in flight. Iterations never do.
    """

    iterations: int | None = None
    trials: int | None = None
    hours: float | None = None

    @classmethod
    def asked(cls, iterations: int | None, trials: int | None, hours: float | None) -> Self:
        """Return what a person asked for; DEFAULT_ITERATIONS if nothing.

        :raises SettingsError: if the hours are not finite.
        """
        if hours is not None and not math.isfinite(hours):
            raise SettingsError(f"--hours {hours} is not finite; set hours like 8 or 0.5")
        if iterations is None and trials is None and hours is None:
            return cls(DEFAULT_ITERATIONS)
        return cls(iterations, trials, hours)

    def __str__(self) -> str:
        """Return ``100 iterations or 8 hours``."""
        parts = (
            None if self.iterations is None else counted(self.iterations, "iteration"),
            None if self.trials is None else counted(self.trials, "trial"),
            None if self.hours is None else f"{self.hours:g} h of work",
        )
        return " or ".join(part for part in parts if part is not None)

    @property
    def is_iterations_alone(self) -> bool:
        """Whether only the number of iterations ends it."""
        return self.iterations is not None and self.trials is None and self.hours is None

    def leaves_room(self, work: Work, in_flight: int) -> bool:
        """Return whether one more iteration may start, so that never more run than were asked
        for."""
        if self.iterations is not None and work.iterations + in_flight >= self.iterations:
            return False
        return self.reached(work) is None

    def reached(self, work: Work) -> str | None:
        """Return which part of the goal is reached, in words; None if none is."""
        if self.iterations is not None and work.iterations >= self.iterations:
            if not self.iterations:
                return "the baseline is measured"
            return f"the goal of {counted(self.iterations, 'iteration')} is reached"
        if self.trials is not None and work.trials >= self.trials:
            goal = counted(self.trials, "trial")
            return f"the goal of {goal} is reached ({counted(work.trials, 'trial')})"
        if self.hours is not None and work.hours >= self.hours:
            return f"the goal of {self.hours:g} h is reached ({work.hours:.2f} h of work)"
        return None
