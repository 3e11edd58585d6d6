"""Runs an attribution: every config of the plan on every seed, and what that says.

Each run is a trial like the loop's: sandboxed, metered, one row when it ends. What is in the
journal is not run again; what a kill cut short is run again from its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from agent.search.campaign import Campaign
from agent.search.planned_runs import DoneRun, PlannedRuns, between_runs
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner, TrialWatcher
from funnel.attribution.plan import AttributionPlan
from funnel.attribution.worth import Worths, worths
from funnel.stress.plan import LongRunSpec
from trainer.spec import AnyConfig, TrialSpec
from trainer.telemetry import Meter
from trajectory.rows import OUTSIDE_SCHEMA, AttributionRow


class AttributionWatcher(TrialWatcher, Protocol):
    """Whoever shows an attribution to a person."""

    def note(self, text: str) -> None: ...
    def run_begins(self, row_of: str, seed: int, number: int, runs: int) -> None: ...
    def run_ended(self, row: AttributionRow) -> None: ...


@dataclass(frozen=True, slots=True)
class AttributionSpec:
    """Turns (config, seed) into the spec of a run: a long run's, as the winner's would be."""

    long_run: LongRunSpec
    winner: AnyConfig

    def __call__(self, config: AnyConfig, seed: int) -> TrialSpec:
        # Without a change the winner was never measured, which a time limit may be taken from.
        return self.long_run(self.winner, seed).model_copy(update={"config": config})

    def expected_s(self) -> float:
        """How long a run should take, by the pace of the winner's short runs."""
        return self.long_run.expected_s(self.winner)


@dataclass(slots=True)
class Attribution:
    """One attribution of a campaign. Make one and call :meth:`run` once."""

    campaign: Campaign
    plan: AttributionPlan
    runner: TrialRunner
    watcher: AttributionWatcher
    stop: StopRequest
    meter: Meter
    rows: list[AttributionRow] = field(init=False)
    """Every such run of the campaign, the newest first."""
    scribe: Scribe = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.campaign.history.newest(AttributionRow)
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)

    def run(self) -> Worths:
        """Every run of the plan that the journal lacks, then what the changes are worth.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        """
        self.scribe.report_unfinished(self.runner.orphaned)
        PlannedRuns(self.runner, self.meter, self.scribe).go(
            self._specs(), "attribution", self._write
        )
        return plan_worths(self.plan, self.rows)

    def missing(self) -> list[tuple[AnyConfig, int]]:
        """The runs of the plan that are in no row."""
        done = {
            (row.config_hash, row.trial.seed) for row in self.rows if row.steps == self.plan.steps
        }
        return [
            (config, seed)
            for config, seed in self.plan.runs()
            if (config.config_hash, seed) not in done
        ]

    def _said(self, config: AnyConfig) -> str:
        if config == self.plan.winner:
            return "the winner"
        knob = self.plan.knob_of(config)
        return "the baseline" if knob is None else f"without {knob}"

    def _specs(self) -> Iterator[TrialSpec]:
        missing = self.missing()
        for number, (config, seed) in enumerate(missing, start=1):
            between_runs(self.scribe)
            self.watcher.run_begins(self._said(config), seed, number, len(missing))
            yield self.runner.spec(config, seed)

    def _write(self, done: DoneRun) -> None:
        config = done.spec.config
        self.scribe.announce_format(OUTSIDE_SCHEMA)
        row = AttributionRow(
            at=timestamp(),
            winner_hash=self.plan.winner.config_hash,
            without=self.plan.knob_of(config),
            steps=self.plan.steps,
            config=config,
            config_hash=config.config_hash,
            trial=done.trial,
            energy_wh=done.energy_wh,
        )
        self.scribe.record(row)
        self.rows.insert(0, row)
        self.watcher.run_ended(row)


def scores_of(rows: Iterable[AttributionRow], steps: int) -> dict[str, dict[int, float]]:
    """config_hash to seed to bits per byte, of the runs of this length that have a score.

    :param rows: the newest first; of a seed run twice the newest counts.
    """
    scores: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.steps == steps and row.trial.val_bpb is not None:
            scores.setdefault(row.config_hash, {}).setdefault(row.trial.seed, row.trial.val_bpb)
    return scores


def plan_worths(plan: AttributionPlan, rows: Iterable[AttributionRow]) -> Worths:
    """What the rows say of the plan's changes."""
    every = scores_of(rows, plan.steps)
    scores = {
        config.config_hash: {
            seed: score
            for seed, score in every.get(config.config_hash, {}).items()
            if seed in plan.seeds
        }
        for config in plan.configs
    }
    return worths(
        scores,
        plan.winner.config_hash,
        plan.baseline.config_hash,
        [change.config.config_hash if change.config else None for change in plan.changes],
    )
