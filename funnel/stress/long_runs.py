"""Long runs: what the stress test and the ladder share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.search.planned_runs import DoneRun, PlannedRuns
from agent.search.scribe import Scribe
from agent.search.trials import TrialRunner
from funnel.stress.verdicts import judge_run
from trainer.spec import Config, TrialSpec
from trainer.telemetry import Meter
from trajectory.rows import Role, StressVerdict


@dataclass(frozen=True, slots=True)
class LongRun:
    """What came of one."""

    done: DoneRun
    verdict: StressVerdict


@dataclass(frozen=True, slots=True)
class LongRunner:
    """Trains and judges them."""

    runner: TrialRunner
    meter: Meter
    scribe: Scribe

    def go(
        self, specs: Iterable[TrialSpec | None], role: Role, ended: Callable[[LongRun], None]
    ) -> None:
        """The runs of these specs, whose budgets count steps or tokens: see
        :meth:`agent.search.planned_runs.PlannedRuns.go`."""
        planned = PlannedRuns(self.runner, self.meter, self.scribe)
        planned.go(specs, role, lambda done: ended(LongRun(done, self._verdict(done))))

    def _verdict(self, done: DoneRun) -> StressVerdict:
        spec, trial = done.spec, done.trial
        return judge_run(
            self.runner.curve(trial.trial_id),
            trial.result,
            steps=spec.steps or 0,
            warmup=spec.config.lr_warmup if isinstance(spec.config, Config) else 0,
        )

    def account_for_superseded(self, spec: TrialSpec) -> None:
        """A run that had finished under other settings, of threads or limits say, will not be asked
        for any more."""

        def same(other: TrialSpec) -> bool:
            mine = (spec.config, spec.seed, spec.budget)
            return (other.config, other.seed, other.budget) == mine

        self.scribe.interrupted(
            self.runner.orphaned.give_up(same),
            "finished before the campaign last stopped, under other settings, and was run again",
        )
