"""Run a ladder: every run of its plan, with the largest rung predicted before it begins.

The plan is in the journal before its first run, and the prediction before the first run of the
largest rung.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.search.experiment import Experiment, PlannedRun
from autoresearch.words import timestamp
from funnel.ladder.points import LadderLog
from funnel.ladder.report import amount, plan_lines, prediction_lines, shape_text
from funnel.ladder.result import LadderResult, ladder_result, make_prediction, read_prediction
from funnel.ladder.shapes import Pace
from funnel.stress.long_runs import verdict_on, whole_schedule
from trainer.schema import Budget, gpt
from trajectory.rows import LadderPlanRow, LadderRow, LadderRun, Row, TrialRecord


@dataclass(kw_only=True)
class Ladder(Experiment[LadderRun, LadderRow, LadderResult]):
    """A ladder. A run's tag is its plan entry, which all its seeds share."""

    role = "ladder"
    row_type = LadderRow

    log: LadderLog
    """The ladders in the journal."""
    plan: LadderPlanRow
    pace: Pace

    def run(self) -> LadderResult:
        """See :meth:`Experiment.run`.

        :raises JournalError: if a prediction was changed.
        """
        read_prediction(
            self.log, self.plan, ()
        )  # refuse a changed prediction before hours are spent
        if self.missing() and (not self.log.plans or self.log.plans[-1] != self.plan):
            self.record(self.plan)
        return super().run()

    def runs(self) -> Iterator[PlannedRun[LadderRun] | None]:
        baseline = gpt(self.campaign.menu.baseline)
        for run in self.plan.runs:
            label = (
                f"rung {run.rung}, {run.recipe}: {amount(run.params)} parameters, "
                f"{amount(run.tokens)} tokens, {shape_text(run.config)}, lr {run.config.lr:.3g}"
            )
            while self._is_largest(run) and not all(
                self._is_largest(other.tag) for other in self.in_flight
            ):
                yield None  # all of them are needed for the prediction
            for seed in run.seeds:
                short = self.campaign.trial_spec(run.config, seed)
                steps = short.budget.steps(baseline.tokens_per_step)
                short_s = short.budget.amount if steps is None else self.pace.run_s(baseline, steps)
                # The time limit is the short runs', times how much longer this run should take.
                spec = whole_schedule(
                    short, Budget(unit="steps", amount=run.steps), run.expected_s / short_s
                )
                yield PlannedRun(spec, label, run, run.steps)

    def variant_of(self, row: LadderRow) -> int:
        return row.steps

    def has_failed(self, row: LadderRow) -> bool:
        return row.verdict.outcome == "failed"

    def expected_s(self, run: PlannedRun[LadderRun]) -> float:
        return run.tag.expected_s

    def begins(self, run: PlannedRun[LadderRun]) -> None:
        """Write the prediction of the largest rung, if it is not in the journal yet."""
        if not self._is_largest(run.tag) or self.log.prediction_of(self.plan) is not None:
            return
        made = make_prediction(
            self.log,
            self.plan,
            vocab_size=self.campaign.corpus.info.vocab_size,
            seed=self.campaign.settings.seed,
            at=timestamp(),
        )
        if isinstance(made, str):
            self.watcher.note(made)
            return
        self.record(made)
        for line in prediction_lines(made):
            self.watcher.note(line)

    def row(
        self, run: PlannedRun[LadderRun], trial: TrialRecord, energy_wh: float | None
    ) -> LadderRow:
        of, predicted = run.tag, self.log.prediction_of(self.plan)
        return LadderRow(
            at=timestamp(),
            plan_sha256=self.plan.sha256,
            recipe=of.recipe,
            rung=of.rung,
            params=of.params,
            lr_factor=of.lr_factor,
            steps=of.steps,
            config=of.config,
            config_hash=of.config.config_hash,
            trial=trial,
            verdict=verdict_on(trial, run.spec, self.runner),
            prediction_sha256=predicted[0].sha256 if predicted and self._is_largest(of) else None,
            energy_wh=energy_wh,
        )

    def record(self, row: Row) -> None:
        super().record(row)
        self.log.add(row)

    def conclude(self) -> LadderResult:
        return ladder_result(
            self.log,
            self.plan,
            vocab_size=self.campaign.corpus.info.vocab_size,
            seed=self.campaign.settings.seed,
        )

    def announcement(self) -> Iterator[str]:
        yield from plan_lines(self.plan)
        yield self.progress(f"{self.pace.runs} short runs")

    def _is_largest(self, run: LadderRun) -> bool:
        return run.rung == self.plan.largest
