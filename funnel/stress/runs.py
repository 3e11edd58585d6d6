"""The stress test: the best configs of a night, trained for a full schedule.

Every run is a trial like the loop's: sandboxed, metered, one row when it ends. What is in the
journal is not run again; what a kill cut short is run again from its start, which for runs of
minutes to an hour is simpler than checkpoints and exact: the same spec gives the same curve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from agent.search.campaign import Campaign
from agent.search.planned_runs import between_runs
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner, TrialWatcher
from funnel.stress.long_runs import LongRun, LongRunner
from funnel.stress.plan import Entrant, LongRunSpec, StressPlan
from trainer.spec import TrialSpec
from trainer.telemetry import Meter
from trajectory.longruns import LongRuns, finalists, gather
from trajectory.rows import LANES_SCHEMA, STRESS_SCHEMA, FinalistsRow, StressRow


class StressWatcher(TrialWatcher, Protocol):
    """Whoever shows a stress test to a person."""

    def note(self, text: str) -> None: ...
    def run_begins(self, entrant: Entrant, seed: int, number: int, runs: int) -> None: ...
    def run_ended(self, row: StressRow) -> None: ...


@dataclass(slots=True)
class StressTest:
    """One stress test of a campaign. Make one and call :meth:`run` once."""

    campaign: Campaign
    plan: StressPlan
    long_run: LongRunSpec
    runner: TrialRunner
    """Whose template is ``long_run``."""
    watcher: StressWatcher
    stop: StopRequest
    meter: Meter
    retry_failed: bool = False
    """Run again what ended for want of memory or time, or crashed."""
    rows: list[StressRow] = field(init=False)
    """Every long run of the campaign, the newest first."""
    scribe: Scribe = field(init=False)
    _under_way: int = field(init=False, default=0)
    """Runs that were asked for and whose rows are not written yet."""

    def __post_init__(self) -> None:
        self.rows = self.campaign.history.newest(StressRow)
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)

    def run(self) -> FinalistsRow:
        """Every run of the plan that the journal lacks, then the finalists.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        """
        self.scribe.report_unfinished(self.runner.orphaned)
        entrants = {entrant.config_hash: entrant for entrant in self.plan.entrants}
        work = LongRunner(self.runner, self.meter, self.scribe)

        def ended(run: LongRun) -> None:
            self._under_way -= 1
            self._write(work, entrants[run.done.trial.config_hash], run)

        work.go(self._specs(), "stress", ended)
        return self._conclude()

    def planned(self) -> list[tuple[Entrant, int]]:
        """The runs of the plan, as far as it is known who gets more than the first seed."""
        return list(self.plan.runs(self._going_on()))

    def missing(self) -> list[tuple[Entrant, int]]:
        """Those that are in no row."""
        done = {
            (name, row.trial.seed)
            for name, runs in self.results().items()
            for row in runs.rows
            if not (self.retry_failed and row.verdict.outcome == "failed")
        }
        return [(e, seed) for e, seed in self.planned() if (e.config_hash, seed) not in done]

    def results(self) -> dict[str, LongRuns]:
        """All long runs of the plan's length so far, by config_hash."""
        return gather(self.rows, self.plan.steps)

    def expected_s(self) -> float:
        """How long the missing runs should take, by the pace of short runs."""
        missing = self.missing()
        one_by_one = sum(self.long_run.expected_s(entrant.config) for entrant, _ in missing)
        return one_by_one / self.runner.places

    def _specs(self) -> Iterator[TrialSpec | None]:
        number, expected = 0, len(self.missing())
        for missing in self._rounds():
            for entrant, seed in missing:
                between_runs(self.scribe)
                number += 1
                self.watcher.run_begins(entrant, seed, number, max(number, expected))
                self._under_way += 1
                yield self.long_run(entrant.config, seed)
            while self._under_way:
                yield None

    def _rounds(self) -> Iterator[list[tuple[Entrant, int]]]:
        """What is missing at once; or where the first seed says who gets the others, its runs, and
        once they are known the others'."""
        missing = self.missing()
        if not self.plan.narrows:
            yield missing
            return
        first = self.plan.seeds[0]
        yield [(entrant, seed) for entrant, seed in missing if seed == first]
        yield [(entrant, seed) for entrant, seed in self.missing() if seed != first]

    def _going_on(self) -> set[str]:
        """Of candidates the best of the first seed; while one of them has no run there, the first
        by rank, for want of better."""
        plan, results = self.plan, self.results()
        everybody = {entrant.config_hash for entrant in plan.entrants}
        if not plan.narrows:
            return everybody
        first = {name: runs.on(plan.seeds[0]) for name, runs in results.items()}
        if all(first.get(name) for name in plan.candidates):
            known = {name: runs for name, runs in first.items() if runs is not None}
            best = finalists(known, plan.candidates, plan.carried, None)
            leaders = {entry.config_hash for entry in best}
        else:
            leaders = set(plan.candidates[: plan.carried])
        if self.campaign.evidence.baseline_hash in everybody:
            leaders.add(self.campaign.evidence.baseline_hash)
        return everybody - set(plan.candidates) | leaders

    def _write(self, work: LongRunner, entrant: Entrant, run: LongRun) -> None:
        done = run.done
        self.scribe.announce_format(LANES_SCHEMA if done.trial.place else STRESS_SCHEMA)
        row = StressRow(
            at=timestamp(),
            purpose=entrant.purpose,
            rank=entrant.rank,
            steps=self.plan.steps,
            config=entrant.config,
            config_hash=entrant.config_hash,
            trial=done.trial,
            verdict=run.verdict,
            energy_wh=done.energy_wh,
        )
        self.scribe.record(row)
        self.rows.insert(0, row)
        work.account_for_superseded(done.spec)
        self.watcher.run_ended(row)

    def _conclude(self) -> FinalistsRow:
        row = FinalistsRow(
            at=timestamp(),
            steps=self.plan.steps,
            finalists=finalists(
                self.results(),
                sorted(self._going_on()),
                self.plan.carried,
                self.campaign.evidence.baseline_hash,
            ),
            spread=self.plan.spread,
        )
        latest = next(iter(self.campaign.history.newest(FinalistsRow, 1)), None)
        if latest is not None and latest.model_copy(update={"at": row.at}) == row:
            return latest
        self.scribe.record(row)
        return row
