"""The calibration: every run that the journal lacks, then what they say.

Every run is a trial like the loop's: sandboxed, metered, one row when it ends. What is in the
journal is not run again; what a kill cut short is run again from its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.search.calibration.plan import CalibrationPlan, Planned
from agent.search.calibration.ways import ConfigRuns, conclude, says_nothing
from agent.search.planned_runs import DoneRun, PlannedRuns, between_runs
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner, TrialWatcher
from autoresearch.errors import CampaignError
from trainer.spec import AnyConfig, CommandOk, TrialFailed, TrialOk, TrialSpec
from trainer.telemetry import Meter
from trajectory.calibrated import Calibrated, CalibrationRun
from trajectory.calibration import FEWEST
from trajectory.rows import OUTSIDE_SCHEMA, CalibratedRow, CalibrationRow


class CalibrationWatcher(TrialWatcher, Protocol):
    """Whoever shows a calibration to a person."""

    def note(self, text: str) -> None: ...
    def config_begins(self, config: AnyConfig, number: int, missing: int) -> None: ...
    def run_ended(self, row: CalibrationRow, planned: Planned) -> None: ...


@dataclass(slots=True)
class Calibration:
    """One calibration of a campaign. Make one and call :meth:`run` once."""

    plan: CalibrationPlan
    runner: TrialRunner
    watcher: CalibrationWatcher
    stop: StopRequest
    meter: Meter
    scribe: Scribe = field(init=False)
    _rows: dict[tuple[str, int, CalibrationRun], CalibrationRow] = field(init=False)
    """The newest row of a config, seed and run."""
    _configs: list[AnyConfig] = field(init=False, default_factory=list)
    """Those that came to be known so far, in their order."""
    _begun: deque[tuple[AnyConfig, Planned]] = field(init=False, default_factory=deque)
    """Runs whose rows are not written yet."""
    _owing: set[str] = field(init=False, default_factory=set)
    """Configs whose own run is among them."""

    def __post_init__(self) -> None:
        campaign = self.plan.campaign
        self.scribe = Scribe(campaign, self.stop, self.watcher.note)
        self._rows = {}
        for row in campaign.history.newest(CalibrationRow):
            self._rows.setdefault((row.config_hash, row.trial.seed, row.run), row)

    def run(self) -> Calibrated:
        """Every run that the journal lacks, config by config, then the conclusion.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        :raises CampaignError: where the configs that could be trained are too few to conclude.
        """
        self.scribe.report_unfinished(self.runner.orphaned)
        PlannedRuns(self.runner, self.meter, self.scribe).go(
            self._specs(), "calibration", self._write
        )
        return self._conclude([self._runs_of(config) for config in self._configs])

    def done(self) -> list[CalibrationRow]:
        """The runs in the journal, whatever they were run for, the newest first."""
        return list(self._rows.values())

    def _specs(self) -> Iterator[TrialSpec | None]:
        """Which config is next follows from the own runs of those before it, so that on several
        lanes it begins while their long runs are at work."""
        while len(self._configs) < self.plan.configs:
            while any(config.config_hash in self._owing for config in self._configs):
                yield None
            known = [(config, self._runs_of(config).own_score) for config in self._configs]
            config = self.plan.following(known)
            self._configs.append(config)
            yield from self._specs_of(config)

    def _specs_of(self, config: AnyConfig) -> Iterator[TrialSpec]:
        planned = list(self.plan.runs(config))
        missing = [one for one in planned if self._key(config, one) not in self._rows]
        if missing:
            self.watcher.config_begins(config, len(self._configs), len(missing))
        for place, one in enumerate(missing):
            if self._is_left_out(config):
                self._give_up(
                    [self.plan.spec(config, other) for other in missing[place:]],
                    "finished before the campaign last stopped, and their config was left out",
                )
                return
            between_runs(self.scribe)
            self._begun.append((config, one))
            if one.kind == "own":
                self._owing.add(config.config_hash)
            yield self.plan.spec(config, one)

    def _is_left_out(self, config: AnyConfig) -> bool:
        """Whether a run of it says nothing: then it is, whatever the others would say."""
        return not self._runs_of(config).complete

    def _runs_of(self, config: AnyConfig) -> ConfigRuns:
        """What is known of it, up to the first run that says nothing."""
        results: dict[Planned, TrialOk | TrialFailed] = {}
        for one in self.plan.runs(config):
            row = self._rows.get(self._key(config, one))
            if row is None:
                continue
            result = row.trial.result
            assert not isinstance(result, CommandOk)
            results[one] = result
            if says_nothing(result):
                break
        return ConfigRuns(self.plan, config, results)

    def _write(self, done: DoneRun) -> None:
        config, planned = self._begun.popleft()
        if planned.kind == "own":
            self._owing.discard(config.config_hash)
        self.scribe.announce_format(OUTSIDE_SCHEMA)
        row = CalibrationRow(
            at=timestamp(),
            run=planned.run,
            config=config,
            config_hash=config.config_hash,
            trial=done.trial,
            energy_wh=done.energy_wh,
        )
        self.scribe.record(row)
        self._rows[self._key(config, planned)] = row
        self._give_up(
            [done.spec],
            "finished before the campaign last stopped, under other settings, and was run again",
        )
        self.watcher.run_ended(row, planned)

    def _give_up(self, specs: Sequence[TrialSpec], why: str) -> None:
        """Runs of these configs, seeds and rulers that had finished, under whatever settings of
        threads or limits, will not be asked for any more."""
        wanted = [(spec.config, spec.seed, spec.ruler) for spec in specs]
        self.scribe.interrupted(
            self.runner.orphaned.give_up(
                lambda other: (other.config, other.seed, other.ruler) in wanted
            ),
            why,
        )

    def _key(self, config: AnyConfig, planned: Planned) -> tuple[str, int, CalibrationRun]:
        return config.config_hash, planned.seed, planned.run

    def _conclude(self, known: list[ConfigRuns]) -> Calibrated:
        found = conclude(self.plan, known)
        if found is None:
            measured = sum(one.complete for one in known)
            raise CampaignError(
                f"{measured} of {len(known)} configs have long scores of their own, and it takes "
                f"{FEWEST} that differ to say anything; ask for more with --configs"
            )
        latest = next(iter(self.plan.campaign.history.newest(CalibratedRow, 1)), None)
        if latest is None or latest.found != found:
            self.scribe.announce_format(OUTSIDE_SCHEMA)
            self.scribe.record(CalibratedRow(at=timestamp(), found=found))
        return found
