"""Collect a campaign's results from the rows of its journal, in memory.

:class:`Results` serves the loop and the commands. The live page and the report need more: they add
the rows to a :class:`CampaignState`.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autoresearch.closing import gc_paused
from autoresearch.values import Frozen
from trainer.spec import TrialFailed
from trajectory.confirmed import Confirmed, ConfirmedConfig, latest_of
from trajectory.evidence import Evidence
from trajectory.headline import Headline
from trajectory.journal import read_rows
from trajectory.ranking import Posteriors
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    ConfirmedRow,
    EventRow,
    IterationRow,
    Row,
    RowOfOneRun,
    TrialRecord,
    trials_of,
)
from trajectory.spending import BusyTime, LaneUse

Kind = TypeVar("Kind", bound=Frozen)


class Results:
    """The results of a journal's rows; the loop adds each row that it writes."""

    def __init__(self, journal: Path) -> None:
        """Read the whole journal, without an incomplete last line.

        :raises JournalError: if the journal is damaged.
        """
        self.evidence = Evidence()
        self.trial_ids: set[str] = set()
        """Ids of all trials in any row, as measured, failed or interrupted."""
        self._journal = journal
        self._others: list[Frozen] = []
        """The rows that are neither baselines nor iterations, in the journal's order."""
        self._measured: dict[str, list[TrialRecord]] = {}
        """Answers of :meth:`measurements` since the last row about a config of the search."""
        with gc_paused():
            for row in read_rows(journal):
                self.add(row)

    def add(self, row: Row) -> None:
        """Add the next row of the journal."""
        self.evidence.add(row)
        for trial in trials_of(row):
            self.trial_ids.add(trial.trial_id)
        if isinstance(row, BaselineRow | IterationRow):
            self._measured.clear()
            return
        self._others.append(row)
        if isinstance(row, EventRow):
            self.trial_ids.update(row.trial_ids)

    def campaign(self) -> CampaignRow | None:
        """Return the campaign's own row; None for an empty journal."""
        return next(iter(self.newest(CampaignRow)), None)

    def headline(self) -> Headline:
        """Return the campaign's result."""
        latest = next(iter(self.newest(ConfirmedRow, 1)), None)
        found = latest.found if latest else None
        return Headline.of(Posteriors.of(self.evidence), found, self.campaign())

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """Return the rows of one kind, newest first; not for baselines and iterations."""
        return [row for row in reversed(self._others) if isinstance(row, kind)][:limit]

    def measurements(self, config_hash: str) -> list[TrialRecord]:
        """Return a config's short runs that ended with a measurement, newest row first.

        Only rows about that config count, not rows in which it served as the reference.
        """
        if config_hash not in self._measured:
            about = [
                trials_of(row)
                for row in read_rows(self._journal)
                if isinstance(row, BaselineRow | IterationRow) and row.config_hash == config_hash
            ]
            self._measured[config_hash] = [
                trial
                for trials in reversed(about)
                for trial in trials
                if trial.config_hash == config_hash and trial.objective is not None
            ]
        return self._measured[config_hash]


@dataclass(frozen=True, slots=True)
class Reign:
    """A config, and the iteration since which it was the incumbent; 0 for the baseline."""

    iter: int
    config_hash: str


class CampaignState:
    """Sums over a campaign's rows, which are added one at a time."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self.reigns: list[Reign] = []
        """Each incumbent so far, in order."""
        self.confirmed: list[Confirmed] = []
        """Results of confirmations, the oldest first."""
        self.trials = 0
        """Trials of baselines and iterations."""
        self.failures: Counter[str] = Counter()
        """Those of them that ended without a score, by status."""
        self.lane_use = LaneUse()
        self._busy = BusyTime()

    def latest_confirmed(self) -> dict[str, ConfirmedConfig]:
        """Return the results on fresh runs, by config hash."""
        return latest_of(reversed(self.confirmed))

    def add(self, row: Row) -> float:
        """Add the next row, and return the seconds that its trials add to the campaign's active
        time, in which simultaneous trials count once."""
        active_s = 0.0
        if isinstance(row, BaselineRow | IterationRow | RowOfOneRun):
            active_s = self._busy.added_s(row)
        if isinstance(row, BaselineRow | IterationRow):
            results = [trial.result for trial in trials_of(row)]
            self.trials += len(results)
            self.failures.update(one.status for one in results if isinstance(one, TrialFailed))
        if isinstance(row, IterationRow):
            self.lane_use.add(row, active_s)
        elif isinstance(row, ConfirmedRow):
            self.confirmed.append(row.found)
        self.evidence.add(row)
        incumbent = self.evidence.incumbent_hash
        if incumbent and (not self.reigns or self.reigns[-1].config_hash != incumbent):
            number = row.iter if isinstance(row, IterationRow) else 0
            if self.reigns:  # with lanes, a later incumbent may have a lower iteration
                number = max(number, self.reigns[-1].iter)
            self.reigns.append(Reign(number, incumbent))
        return active_s
