"""The calibration: every run that the journal lacks, then what they say.

Every run is a trial like the loop's: sandboxed, metered, one row when it ends. What is in the
journal is not run again; what a kill cut short is run again from its start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from agent.search.calibration.plan import CalibrationPlan, Planned
from agent.search.calibration.ways import ConfigRuns, conclude, says_nothing
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
        self.scribe.report_unfinished(self.runner.leftovers)
        known: list[ConfigRuns] = []
        while len(known) < self.plan.configs:
            config = self.plan.following([(one.config, one.own_score) for one in known])
            known.append(self._runs_of(config, len(known) + 1))
        return self._conclude(known)

    def done(self) -> list[CalibrationRow]:
        """The runs in the journal, whatever they were run for, the newest first."""
        return list(self._rows.values())

    def _runs_of(self, config: AnyConfig, number: int) -> ConfigRuns:
        planned = list(self.plan.runs(config))
        missing = [one for one in planned if self._key(config, one) not in self._rows]
        if missing:
            self.watcher.config_begins(config, number, len(missing))
        results: dict[Planned, TrialOk | TrialFailed] = {}
        for one in planned:
            if self._key(config, one) not in self._rows:
                self.stop.check()
                self.scribe.wait_while_paused()
                self._run(config, one)
            result = self._rows[self._key(config, one)].trial.result
            assert not isinstance(result, CommandOk)
            results[one] = result
            if says_nothing(result):
                break  # it is left out, whatever the others would say
        return ConfigRuns(self.plan, config, results)

    def _run(self, config: AnyConfig, planned: Planned) -> None:
        began = time.monotonic()
        spec = self.plan.spec(config, planned)
        trial = self.runner.run_spec(spec, "calibration")
        self.scribe.announce_format(OUTSIDE_SCHEMA)
        row = CalibrationRow(
            at=timestamp(),
            run=planned.run,
            config=config,
            config_hash=config.config_hash,
            trial=trial,
            # Of a run that had ended before this start nothing was metered here.
            energy_wh=None
            if trial.trial_id in self.runner.taken_up
            else self.meter.energy_wh(began),
        )
        self.scribe.record(row)
        self._rows[self._key(config, planned)] = row
        self._account_for_superseded(spec)
        self.watcher.run_ended(row, planned)

    def _account_for_superseded(self, spec: TrialSpec) -> None:
        """A run of this config, seed and ruler that had finished under other settings, of threads
        or limits say, will not be asked for any more."""

        def same(other: TrialSpec) -> bool:
            mine = (spec.config, spec.seed, spec.ruler)
            return (other.config, other.seed, other.ruler) == mine

        self.scribe.interrupted(
            self.runner.leftovers.give_up(same),
            "finished before the campaign last stopped, under other settings, and was run again",
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
