"""How far a campaign is to go: iterations, trials, hours, whichever is reached first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from autoresearch.errors import SettingsError
from autoresearch.words import counted
from trajectory.rows import BaselineRow, IterationRow, Row
from trajectory.worked import Worked

DEFAULT_ITERATIONS = 100


@dataclass(slots=True)
class Work:
    """What a campaign took so far, over all its sittings."""

    iterations: int = 0
    trials: int = 0
    """Short runs that ended, the baseline's among them."""
    hours: float = 0.0
    """At work on iterations and the baseline, by the clock: pauses, and what a stop cut off, left
    out."""
    _worked: Worked = field(default_factory=Worked)
    _seen: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """From a journal."""
        work = cls()
        for row in rows:
            work.add(row)
        return work

    def add(self, row: Row) -> None:
        """One more row."""
        if isinstance(row, BaselineRow):
            self.trials += 1
            self.hours += self._worked.added_s(row) / 3600
        elif isinstance(row, IterationRow) and row.iter not in self._seen:
            self._seen.add(row.iter)  # a line that an editor doubled is no work
            self.iterations += 1
            self.trials += len(row.trials)
            self.hours += self._worked.added_s(row) / 3600


@dataclass(frozen=True, slots=True)
class Goal:
    """To be reached in all, earlier sittings counted; what is None does not end it.

    It is looked at before an iteration begins, so trials and hours may overshoot by the races that
    are at work then. Iterations never do.
    """

    iterations: int | None = None
    trials: int | None = None
    hours: float | None = None

    @classmethod
    def asked(cls, iterations: int | None, trials: int | None, hours: float | None) -> Self:
        """What a person asked for; DEFAULT_ITERATIONS where nothing was.

        :raises SettingsError: where the hours would never end.
        """
        if hours is not None and not math.isfinite(hours):
            raise SettingsError(f"--hours {hours} is no length of time; give hours like 8 or 0.5")
        if iterations is None and trials is None and hours is None:
            return cls(DEFAULT_ITERATIONS)
        return cls(iterations, trials, hours)

    def __str__(self) -> str:
        """``100 iterations or 8 hours``"""
        parts = (
            None if self.iterations is None else counted(self.iterations, "iteration"),
            None if self.trials is None else counted(self.trials, "trial"),
            None if self.hours is None else f"{self.hours:g} h of work",
        )
        return " or ".join(part for part in parts if part is not None)

    @property
    def is_iterations_alone(self) -> bool:
        """Whether nothing else ends it."""
        return self.iterations is not None and self.trials is None and self.hours is None

    def leaves_room(self, work: Work, in_flight: int) -> bool:
        """Whether one more iteration may begin beside so many: never more than were asked for."""
        if self.iterations is not None and work.iterations + in_flight >= self.iterations:
            return False
        return self.reached(work) is None

    def reached(self, work: Work) -> str | None:
        """What of it is reached, in words; None while nothing is."""
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
