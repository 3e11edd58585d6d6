"""Run one experiment on a campaign: plan the runs, run what is missing, write one row per run,
conclude.

confirm, calibrate, stress, attribute and ladder differ in their plan, their rows and their
conclusion; :class:`Experiment` does everything between. Every run is a trial like the loop's:
sandboxed, metered, and recorded in one row when it ends. A run with a row is not repeated. A run
that was killed starts again from the beginning, since the same spec gives the same curve.

An orphaned trial (one that began and has no row) is resumed if it finished and its spec is planned.
If it did not finish, or an experiment concluded without it, an event row reports it as interrupted.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import takewhile
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar

from pydantic import Field

from agent.search.campaign import Campaign
from agent.search.scribe import Scribe
from agent.search.trial import TrialWatcher
from agent.search.trials import TrialRunner
from agent.settings.campaign import Block, seeds_of
from autoresearch.errors import CampaignError
from autoresearch.options import AsOption
from autoresearch.words import duration_text
from trainer.schema import TrialFailed, TrialSpec
from trainer.telemetry import Sampler
from trajectory.rows import (
    CalibratedRow,
    ConfirmedRow,
    FinalistsRow,
    Role,
    Row,
    RowOfOneRun,
    StressRow,
    TrialRecord,
)

Key: TypeAlias = tuple[str, int, Hashable]
Tag = TypeVar("Tag")
RunRow = TypeVar("RunRow", bound=RowOfOneRun)
Found = TypeVar("Found")
FoundRow = TypeVar("FoundRow", FinalistsRow, ConfirmedRow, CalibratedRow)
RetryFailed = Annotated[
    bool,
    AsOption("--retry-failed"),
    Field(description="Repeat runs that failed."),
]
"""Option of every experiment to run failed runs again."""


@dataclass(frozen=True, slots=True)
class PlannedRun(Generic[Tag]):
    """One run of an experiment's plan."""

    spec: TrialSpec
    """Spec of the run, its trial_id empty."""
    label: str
    """Name of the run in printed lines, besides its seed."""
    tag: Tag
    """Further data that the experiment keeps with the run."""
    variant: Hashable = None
    """Value that distinguishes runs of one config and seed."""

    @property
    def key(self) -> Key:
        """Key of the run. Of two runs with equal keys, one is enough."""
        return self.spec.config.config_hash, self.spec.seed, self.variant


class ExperimentWatcher(TrialWatcher):
    """Follows an experiment. The next trial to start is the one of the newest run."""

    def note(self, text: str) -> None:
        """Report something to the user."""

    def run_begins(self, run: PlannedRun[Any], number: int, total: int) -> None:
        """Report that a run begins: the ``number``-th of ``total`` to be made."""

    def run_ended(self, run: PlannedRun[Any], row: RowOfOneRun) -> None:
        """Report that a run has its row."""


@dataclass(kw_only=True)
class Experiment(ABC, Generic[Tag, RunRow, Found]):
    """One experiment of a campaign. Make one and call :meth:`run` once."""

    role: ClassVar[Role]
    row_type: ClassVar[type[Any]]

    campaign: Campaign
    runner: TrialRunner
    watcher: ExperimentWatcher
    meter: Sampler
    retry_failed: bool = False
    rows: dict[Key, RunRow] = field(init=False, default_factory=dict)
    """Newest row of each run of the campaign, for whatever plan it was run; the newest first."""
    in_flight: deque[PlannedRun[Tag]] = field(init=False, default_factory=deque)
    """Runs that began and have no row yet, in their order."""
    _began_s: deque[float] = field(init=False, default_factory=deque)
    again: set[Key] = field(init=False)
    """Runs that have a row and are repeated nevertheless."""
    _asked: set[tuple[str, int, object]] = field(init=False, default_factory=set)
    """Config, seed and evaluation of every run that was planned so far."""

    def __post_init__(self) -> None:
        for row in self.campaign.results.newest(self.row_type):
            if self.serves(row):
                key = row.config_hash, row.trial.seed, self.variant_of(row)
                self.rows.setdefault(key, row)
        failed = {key for key, row in self.rows.items() if self.has_failed(row)}
        self.again = failed if self.retry_failed else set()

    # --- defined by each experiment ---------------------------------------------------------------

    @abstractmethod
    def runs(self) -> Iterator[PlannedRun[Tag] | None]:
        """Yield every run of the plan in its order, whether it has a row or not.

        None means that the next run depends on those in flight, so the iterator is asked again once
        one of them has its row. Nothing is in flight if the plan is only inspected.
        """

    @abstractmethod
    def row(self, run: PlannedRun[Tag], trial: TrialRecord, energy_wh: float | None) -> RunRow:
        """Return the row of a run that ended.

        :param energy_wh: None if nothing measured it, if the run ended in an earlier session, or if
            several runs were concurrent, which share the measured energy.
        """

    @abstractmethod
    def announcement(self) -> Iterator[str]:
        """Yield lines on the runs to come, and how long they should take."""

    @abstractmethod
    def conclude(self) -> Found:
        """Return the result, once every run of the plan has a row."""

    def expected_s(self, run: PlannedRun[Tag]) -> float:
        """Return the expected seconds of a run, by the pace of earlier runs."""
        return 0.0

    def variant_of(self, row: RunRow) -> Hashable:
        """Return the :attr:`PlannedRun.variant` of a row's run."""
        return None

    def serves(self, row: RunRow) -> bool:
        """Return whether a row of the journal may serve as a run of this plan."""
        return True

    def has_failed(self, row: RunRow) -> bool:
        """Return whether a run gives no information on its config: it ended without a score, for
        another reason than a loss that was not finite. A second run would repeat such a loss."""
        result = row.trial.result
        return isinstance(result, TrialFailed) and result.status != "nonfinite"

    def is_wanted(self, run: PlannedRun[Tag]) -> bool:
        """Return whether a run without a row is still needed, given the rows so far."""
        return True

    def begins(self, run: PlannedRun[Tag]) -> None:
        """Prepare for a run, right before it starts."""

    # --- shared by all experiments ----------------------------------------------------------------

    @cached_property
    def scribe(self) -> Scribe:
        """Writer of the campaign's rows."""
        return Scribe(self.campaign, self.runner.stop, self.watcher.note)

    def run(self) -> Found:
        """Make every run that the journal lacks, and conclude.

        :raises Interrupted: if the user stopped it; everything finished is on disk.
        """
        self.scribe.report_unfinished(self.runner.orphaned)
        with self.runner.stop.deferred():
            asyncio.run(self.runner.run_all(self._specs(), self._take))
        self.scribe.interrupted(
            self.runner.orphaned.give_up(lambda spec: _measured_by(spec) in self._asked),
            "finished before the campaign last stopped, and the experiment ended without it: it "
            "had other settings, or its config was left out",
        )
        return self.conclude()

    def _take(self, trial: TrialRecord) -> None:
        """Write the row of the run that is next in the plan's order."""
        run, began_s = self.in_flight.popleft(), self._began_s.popleft()
        unmetered = trial.trial_id in self.runner.resumed or self.runner.places > 1
        row = self.row(run, trial, None if unmetered else self.meter.energy_wh(began_s))
        self.record(row)
        self.rows.pop(run.key, None)
        self.rows = {run.key: row, **self.rows}
        self.again.discard(run.key)
        self.watcher.run_ended(run, row)

    def planned(self) -> list[PlannedRun[Tag]]:
        """Return the runs of the plan, as far as they are known."""
        return list(takewhile(lambda run: run is not None, self.runs()))  # type: ignore[arg-type]

    def missing(self) -> list[PlannedRun[Tag]]:
        """Return the planned runs that are still to be made."""
        return [run for run in self.planned() if self._is_missing(run)]

    def expected_left_s(self) -> float:
        """Return the expected seconds until every missing run has ended."""
        return sum(map(self.expected_s, self.missing())) / self.runner.places

    def known(self, run: PlannedRun[Tag]) -> RunRow | None:
        """Return the row of a run; None if it is still to be made, or made again."""
        return None if run.key in self.again else self.rows.get(run.key)

    def progress(self, pace: str) -> str:
        """Return a line with the number of runs, and how long the missing ones should take.

        :param pace: name of the runs on whose pace the estimate is based.
        """
        runs, missing = len(self.planned()), self.missing()
        known = f", {runs - len(missing)} of them in the journal" if len(missing) < runs else ""
        if not missing:
            return f"          {runs} runs{known}; nothing is left to run"
        left_s = self.expected_left_s()
        end = datetime.now() + timedelta(seconds=left_s)
        return (
            f"          {runs} runs{known}; about {duration_text(left_s)} by the pace of {pace}, "
            f"until {end:%a %H:%M}"
        )

    def total(self) -> int:
        """Return the number of runs to make, as far as it is known."""
        return len(self.missing())

    def record_found(self, row: FoundRow) -> FoundRow:
        """Write a conclusion, unless the latest of its kind is the same; return the one in the
        journal."""
        latest = next(iter(self.campaign.results.newest(type(row), 1)), None)
        if latest is not None and latest.model_copy(update={"at": row.at}) == row:
            return latest
        self.record(row)
        return row

    def record(self, row: Row) -> None:
        """Write a row of the experiment."""
        self.scribe.record(row)

    def _specs(self) -> Iterator[tuple[TrialSpec, Role] | None]:
        number, total = 0, self.total()
        for run in self.runs():
            if run is None:
                yield None
                continue
            self._asked.add(_measured_by(run.spec))
            if not self._is_missing(run):
                continue
            self.runner.stop.check()
            self.scribe.wait_while_paused()
            self.begins(run)
            number += 1
            self.watcher.run_begins(run, number, max(number, total))
            self.in_flight.append(run)
            self._began_s.append(time.monotonic())
            yield run.spec, self.role

    def _is_missing(self, run: PlannedRun[Tag]) -> bool:
        return self.known(run) is None and self.is_wanted(run)


def fresh_seeds(campaign: Campaign, experiment: Block, count: int) -> tuple[int, ...]:
    """Return the first seeds of an experiment's block that are fresh.

    No short run used them, nor, for ladders and attributions, a stress test. They are the same for
    every config and every such experiment of a campaign. So differences are paired, and earlier
    runs are found again.

    :raises CampaignError: if too few are left.
    """
    entries = campaign.evidence.configs.values()
    used = {seed for entry in entries for seed in (*entry.scores, *entry.failed_seeds)}
    if experiment in {"ladder", "attribution"}:
        used |= {row.trial.seed for row in campaign.results.newest(StressRow)}
    fresh = [seed for seed in seeds_of(campaign.settings.seed, experiment) if seed not in used]
    if len(fresh) < count:
        raise CampaignError(
            f"this campaign has {len(fresh)} fresh seeds left and {count} were asked for; ask for "
            "fewer with --seeds"
        )
    return tuple(fresh[:count])


def _measured_by(spec: TrialSpec) -> tuple[str, int, object]:
    """Return the data that determine a trial's score."""
    return spec.config.config_hash, spec.seed, spec.evaluation
