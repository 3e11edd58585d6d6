"""What a journal holds of ladders, in the order in which it was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from trainer.spec import Config
from trajectory.ladder_plan import LadderPlanRow, LadderPredictionRow, LadderRun
from trajectory.rows import LadderRow, Row

RunKey: TypeAlias = tuple[str, int, int]
"""What makes two runs the same: config_hash, steps, seed."""


@dataclass(slots=True)
class LadderLog:
    """Plans, predictions and runs."""

    plans: list[LadderPlanRow] = field(default_factory=list)
    predictions: list[tuple[LadderPredictionRow, int]] = field(default_factory=list)
    """Each with the number of runs that were in the journal before it."""
    runs: list[LadderRow] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """From a journal's rows."""
        log = cls()
        for row in rows:
            log.add(row)
        return log

    def add(self, row: Row) -> None:
        """Take in one row, in the journal's order."""
        if isinstance(row, LadderPlanRow):
            self.plans.append(row)
        elif isinstance(row, LadderPredictionRow):
            self.predictions.append((row, len(self.runs)))
        elif isinstance(row, LadderRow):
            self.runs.append(row)

    def done(self, plan: LadderPlanRow) -> dict[tuple[int, int], LadderRow]:
        """The runs of this plan that were made, whatever plan they were made for, by the run's
        place in the plan and the seed; of a run made twice the newest."""
        wanted = {
            key: (number, seed)
            for number, run in enumerate(plan.runs)
            for seed in run.seeds
            for key in [key_of(run.config, run.steps, seed)]
        }
        made = (((row.config_hash, row.steps, row.trial.seed), row) for row in self.runs)
        return {wanted[key]: row for key, row in made if key in wanted}

    def prediction_of(
        self, plan: LadderPlanRow
    ) -> tuple[LadderPredictionRow, Sequence[LadderRow]] | None:
        """Return the prediction made for this plan, and the runs that were in the journal before
        it; None where none was made."""
        for row, before in self.predictions:
            if row.plan_sha256 == plan.sha256:
                return row, self.runs[:before]
        return None


def key_of(config: Config, steps: int, seed: int) -> RunKey:
    """Of a run."""
    return config.config_hash, steps, seed


def pending(
    plan: LadderPlanRow, done: dict[tuple[int, int], LadderRow]
) -> list[tuple[LadderRun, int]]:
    """Return the runs of a plan, with their seeds, that have no row, in its order."""
    return [
        (run, seed)
        for number, run in enumerate(plan.runs)
        for seed in run.seeds
        if (number, seed) not in done
    ]
