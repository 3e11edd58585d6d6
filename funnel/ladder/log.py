"""Collect the ladders in a journal, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from trainer.spec import Config
from trajectory.ladder_plan import LadderPlanRow, LadderPredictionRow, LadderRun
from trajectory.rows import LadderRow, Row

RunKey: TypeAlias = tuple[str, int, int]
"""The key of a run: config_hash, steps, seed. Two runs with the same key are the same run."""


@dataclass(slots=True)
class LadderLog:
    """Plans, predictions and runs of ladders."""

    plans: list[LadderPlanRow] = field(default_factory=list)
    predictions: list[tuple[LadderPredictionRow, int]] = field(default_factory=list)
    """Predictions, each with the number of runs in the journal before it."""
    runs: list[LadderRow] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Collect from a journal's rows."""
        log = cls()
        for row in rows:
            log.add(row)
        return log

    def add(self, row: Row) -> None:
        """Add one row, in the journal's order."""
        if isinstance(row, LadderPlanRow):
            self.plans.append(row)
        elif isinstance(row, LadderPredictionRow):
            self.predictions.append((row, len(self.runs)))
        elif isinstance(row, LadderRow):
            self.runs.append(row)

    def done(self, plan: LadderPlanRow) -> dict[tuple[int, int], LadderRow]:
        """Return the finished runs of this plan, by their place in the plan and their seed.

        It does not matter for which plan a run was made. Of a run made twice, the newest counts.
        """
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
        """Return the prediction made for this plan, and the runs in the journal before it; None if
        there is no prediction."""
        for row, before in self.predictions:
            if row.plan_sha256 == plan.sha256:
                return row, self.runs[:before]
        return None


def key_of(config: Config, steps: int, seed: int) -> RunKey:
    """Return the key of a run."""
    return config.config_hash, steps, seed


def pending(
    plan: LadderPlanRow, done: dict[tuple[int, int], LadderRow]
) -> list[tuple[LadderRun, int]]:
    """Return the runs of a plan that have no row, with their seeds, in the plan's order."""
    return [
        (run, seed)
        for number, run in enumerate(plan.runs)
        for seed in run.seeds
        if (number, seed) not in done
    ]
