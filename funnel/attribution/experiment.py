"""Run an attribution on fresh seeds: the winner, the baseline, the winner without each change."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.search.experiment import Experiment, PlannedRun
from autoresearch.words import timestamp
from funnel.attribution.result import AttributionPlan, AttributionResult
from funnel.stress.long_runs import LongRunSpec
from trajectory.rows import AttributionRow, TrialRecord


@dataclass(kw_only=True)
class Attribution(Experiment[str | None, AttributionRow, AttributionResult]):
    """An attribution. A run's tag is the knob that it undoes."""

    role = "attribution"
    row_type = AttributionRow

    plan: AttributionPlan

    def runs(self) -> Iterator[PlannedRun[str | None]]:
        """Yield all configs on one seed before the next seed. If stopped early, the attribution has
        compared all of them, on fewer seeds."""
        long_run = LongRunSpec(self.campaign, self.plan.steps)
        for seed in self.plan.seeds:
            # The winner without a change was never measured, so no time limit could be derived from
            # it.
            of_winner = long_run(self.plan.winner, seed)
            for config, knob in self.plan.configs.items():
                label = f"without {knob}" if knob else "the baseline"
                if config == self.plan.winner:
                    label = "the winner"
                spec = of_winner.model_copy(update={"config": config})
                yield PlannedRun(spec, label, knob, self.plan.steps)

    def variant_of(self, row: AttributionRow) -> int:
        return row.steps

    def expected_s(self, run: PlannedRun[str | None]) -> float:
        return LongRunSpec(self.campaign, self.plan.steps).expected_s(self.plan.winner)

    def row(
        self, run: PlannedRun[str | None], trial: TrialRecord, energy_wh: float | None
    ) -> AttributionRow:
        return AttributionRow(
            at=timestamp(),
            winner_hash=self.plan.winner.config_hash,
            without=run.tag,
            steps=self.plan.steps,
            config=run.spec.config,
            config_hash=trial.config_hash,
            trial=trial,
            energy_wh=energy_wh,
        )

    def conclude(self) -> AttributionResult:
        return AttributionResult.of(self.plan, list(self.rows.values()))

    def announcement(self) -> Iterator[str]:
        plan = self.plan
        alone = sum(change.config is not None for change in plan.changes)
        yield (
            f"attribute {LongRunSpec(self.campaign, plan.steps).budget} a run; the winner, the "
            f"baseline and {alone} changes of {len(plan.changes)} taken back alone; seeds "
            f"{', '.join(map(str, plan.seeds))}"
        )
        yield self.progress("the winner's short runs")
