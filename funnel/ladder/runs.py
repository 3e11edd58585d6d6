"""A ladder at work: every run of its plan, the largest rung predicted before it begins.

The plan is in the journal before its first run, the prediction before the first of the largest
rung; every run is a trial like the loop's, sandboxed and metered, with one row when it ends. What
is in the journal is not run again; what a kill cut short is run again from its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from agent.search.campaign import Campaign
from agent.search.planned_runs import between_runs
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner, TrialWatcher
from funnel.ladder.log import LadderLog, pending
from funnel.ladder.pace import Pace
from funnel.ladder.prediction import foretold, make_prediction
from funnel.ladder.result import LadderResult, ladder_result
from funnel.stress.long_runs import LongRun, LongRunner
from trainer.spec import Budget, TrialSpec, gpt
from trainer.telemetry import Meter
from trajectory.ladder_plan import LadderPlanRow, LadderPredictionRow, LadderRun
from trajectory.rows import OUTSIDE_SCHEMA, LadderRow

_Begun: TypeAlias = tuple[LadderRun, LadderPredictionRow | None]
"""A run whose row is not written yet, and what was foretold of it."""


class LadderWatcher(TrialWatcher, Protocol):
    """Whoever shows a ladder to a person."""

    def note(self, text: str) -> None: ...
    def run_begins(self, run: LadderRun, seed: int, number: int, runs: int) -> None: ...
    def run_ended(self, row: LadderRow) -> None: ...
    def predicted(self, row: LadderPredictionRow) -> None: ...


@dataclass(slots=True)
class Ladder:
    """One ladder of a campaign. Make one and call :meth:`run` once."""

    campaign: Campaign
    log: LadderLog
    """What the journal holds of ladders."""
    plan: LadderPlanRow
    pace: Pace
    runner: TrialRunner
    watcher: LadderWatcher
    stop: StopRequest
    meter: Meter
    retry_failed: bool = False
    """Run again what ended for want of memory or time, or crashed."""
    scribe: Scribe = field(init=False)

    def __post_init__(self) -> None:
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)

    def run(self) -> LadderResult:
        """Every run of the plan that the journal lacks, then what they add up to.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        :raises JournalError: where a prediction was changed.
        """
        self.scribe.report_unfinished(self.runner.orphaned)
        foretold(self.log, self.plan, ())  # one that was changed is refused before hours are spent
        missing = self.missing()
        if missing and (not self.log.plans or self.log.plans[-1] != self.plan):
            self._record(self.plan)
        work = LongRunner(self.runner, self.meter, self.scribe)
        begun: deque[_Begun] = deque()
        work.go(
            self._specs(missing, begun),
            "ladder",
            lambda run: self._write(work, begun.popleft(), run),
        )
        return self._result()

    def missing(self) -> list[tuple[LadderRun, int]]:
        """The runs of the plan that are in no row, with their seeds, in its order."""
        return pending(self.plan, self.log.done(self.plan), again=self.retry_failed)

    def spec(self, run: LadderRun, seed: int) -> TrialSpec:
        """The spec of a run, its trial_id empty: its whole schedule, every step in the curve.

        The time limit is the short runs', times as many times longer as this one should take.
        """
        short = self.campaign.trial_spec(run.config, seed)
        baseline = gpt(self.campaign.menu.baseline)
        steps = short.budget.steps(baseline.tokens_per_step)
        short_s = short.budget.amount if steps is None else self.pace.run_s(baseline, steps)
        more = max(1.0, run.expected_s / short_s)
        return short.model_copy(
            update={
                "budget": Budget(unit="steps", amount=run.steps),
                "horizon_steps": None,
                "cooldown_steps": 0,
                "average": None,
                "log_every": 1,
                "limits": short.limits.model_copy(update={"wall_s": short.limits.wall_s * more}),
            }
        )

    def _specs(
        self, missing: Sequence[tuple[LadderRun, int]], begun: deque[_Begun]
    ) -> Iterator[TrialSpec | None]:
        """
        :param begun: takes what was begun; who writes its row takes it out.
        """
        foretelling = False
        for number, (run, seed) in enumerate(missing, start=1):
            predicted = None
            if run.rung == self.plan.largest:
                while begun and not foretelling:
                    yield None  # it is foretold from all of them
                foretelling = True
            between_runs(self.scribe)
            if foretelling:
                predicted = self._prediction()
            self.watcher.run_begins(run, seed, number, len(missing))
            begun.append((run, predicted))
            yield self.spec(run, seed)

    def _write(self, work: LongRunner, begun: _Begun, long_run: LongRun) -> None:
        (run, predicted), done = begun, long_run.done
        row = LadderRow(
            at=timestamp(),
            plan_sha256=self.plan.sha256,
            recipe=run.recipe,
            rung=run.rung,
            params=run.params,
            lr_factor=run.lr_factor,
            steps=run.steps,
            config=run.config,
            config_hash=run.config.config_hash,
            trial=done.trial,
            verdict=long_run.verdict,
            prediction_sha256=predicted.sha256 if predicted else None,
            energy_wh=done.energy_wh,
        )
        self._record(row)
        work.account_for_superseded(done.spec)
        self.watcher.run_ended(row)

    def _prediction(self) -> LadderPredictionRow | None:
        """The one in the journal, else one that is written there now; None where nothing can be
        foretold."""
        try:
            return self.log.prediction(self.plan)[0]
        except LookupError:
            pass
        made = make_prediction(
            self.log,
            self.plan,
            vocab_size=self.campaign.corpus.info.vocab_size,
            seed=self.campaign.settings.seed,
            at=timestamp(),
        )
        if isinstance(made, str):
            self.watcher.note(made)
            return None
        self._record(made)
        self.watcher.predicted(made)
        return made

    def _record(self, row: LadderPlanRow | LadderPredictionRow | LadderRow) -> None:
        self.scribe.announce_format(OUTSIDE_SCHEMA)
        self.scribe.record(row)
        self.log.add(row)

    def _result(self) -> LadderResult:
        return ladder_result(
            self.log,
            self.plan,
            vocab_size=self.campaign.corpus.info.vocab_size,
            seed=self.campaign.settings.seed,
        )
