"""Fold the rows of a campaign's journal into its results, in memory: every reader's one pass.

The loop, the commands and the live page use :class:`Results` itself; the report adds what only its
page needs (:mod:`trajectory.report.ledger`).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from autoresearch.closing import gc_paused
from autoresearch.values import Frozen
from trainer.schema import TrialFailed
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


@dataclass(frozen=True, slots=True)
class Reign:
    """A config, and the iteration since which it was the incumbent; 0 for the baseline."""

    iter: int
    config_hash: str


class Results:
    """The results of a journal's rows, which are added one at a time."""

    def __init__(self, journal: Path | None = None) -> None:
        """Read a whole journal, without an incomplete last line; without one, begin empty.

        :raises JournalError: if the journal is damaged.
        """
        self.campaign: CampaignRow | None = None
        """The campaign's own row; None for an empty journal."""
        self.evidence = Evidence()
        self.trial_ids: set[str] = set()
        """Ids of all trials in any row, as measured, failed or interrupted."""
        self.reigns: list[Reign] = []
        """Each incumbent so far, in order."""
        self.kept = 0
        """Iterations whose candidate was kept."""
        self.untrained = 0
        """Iterations without a trial."""
        self.trials = 0
        """Trials of baselines and iterations."""
        self.failures: Counter[str] = Counter()
        """Those of them that ended without a score, by status."""
        self.lane_use = LaneUse()
        self._busy = BusyTime()
        self._others: defaultdict[type, list[Any]] = defaultdict(list)
        """The rows that are neither baselines nor iterations, by kind, in the journal's order."""
        self._measured: defaultdict[str, list[list[TrialRecord]]] = defaultdict(list)
        """The measurements of each row about a config, by config hash."""
        if journal is not None:
            with gc_paused():
                for row in read_rows(journal):
                    self.add(row)

    def add(self, row: Row) -> float:
        """Add the next row, and return the seconds that its trials add to the campaign's active
        time, in which simultaneous trials count once."""
        trials = trials_of(row)
        self.trial_ids.update(trial.trial_id for trial in trials)
        active_s = 0.0
        if isinstance(row, BaselineRow | IterationRow | RowOfOneRun):
            active_s = self._busy.added_s(row)
        if isinstance(row, BaselineRow | IterationRow):
            self._add_of_search(row, trials)
        else:
            self._others[type(row)].append(row)
        if isinstance(row, IterationRow):
            self.kept += row.decision.action == "keep"
            self.untrained += not trials
            self.lane_use.add(row, active_s)
        elif isinstance(row, EventRow):
            self.trial_ids.update(row.trial_ids)
        elif isinstance(row, CampaignRow):
            self.campaign = row
        self.evidence.add(row)
        self._note_incumbent(row)
        return active_s

    def _add_of_search(
        self, row: BaselineRow | IterationRow, trials: tuple[TrialRecord, ...]
    ) -> None:
        self.trials += len(trials)
        results = (trial.result for trial in trials)
        self.failures.update(one.status for one in results if isinstance(one, TrialFailed))
        if row.config_hash is not None:
            own = (trial for trial in trials if trial.config_hash == row.config_hash)
            measured = [trial for trial in own if trial.objective is not None]
            self._measured[row.config_hash].append(measured)

    def _note_incumbent(self, row: Row) -> None:
        incumbent = self.evidence.incumbent_hash
        if incumbent is None or (self.reigns and self.reigns[-1].config_hash == incumbent):
            return
        number = row.iter if isinstance(row, IterationRow) else 0
        if self.reigns:  # with lanes, a later incumbent may have a lower iteration
            number = max(number, self.reigns[-1].iter)
        self.reigns.append(Reign(number, incumbent))

    def rows_of(self, kind: type[Kind]) -> list[Kind]:
        """Return the rows of one kind in the journal's order; not for baselines and iterations."""
        return list(self._others[kind])

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """Return the rows of one kind, newest first; not for baselines and iterations."""
        return self._others[kind][::-1][:limit]

    def measurements(self, config_hash: str) -> list[TrialRecord]:
        """Return a config's short runs that ended with a measurement, newest row first.

        Only rows about that config count, not rows in which it served as the reference.
        """
        rows = self._measured.get(config_hash, [])
        return [trial for measured in reversed(rows) for trial in measured]

    def confirmed(self) -> Confirmed | None:
        """Return the latest confirmation's result; None if there is none."""
        return next((row.found for row in self.newest(ConfirmedRow, 1)), None)

    def latest_confirmed(self) -> dict[str, ConfirmedConfig]:
        """Return the results on fresh runs, by config hash."""
        return latest_of(row.found for row in self.newest(ConfirmedRow))

    def headline(self) -> Headline:
        """Return the campaign's result."""
        return Headline.of(Posteriors.of(self.evidence), self.confirmed(), self.campaign)
