"""A world made of real runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from statistics import median

import numpy as np

from bench.simulator.climb import climb
from bench.simulator.encoding import Encoder, Matrix
from bench.simulator.noise import NoiseModel
from bench.simulator.replicates import noise_of
from bench.simulator.runs import RunTable
from bench.simulator.surrogate import (
    FailureModel,
    Family,
    ScoreModel,
    Validation,
    Vector,
    validated,
)
from bench.simulator.traces import TraceModel
from bench.simulator.world import Run, SimulatedWorld
from trainer.spec import Config

STARTS = 5
"""Of the table's best configs, from which the best of the menu is climbed to."""
_REMEMBERED = 100_000


class RealWorld(SimulatedWorld):
    """A table of runs, seen through surrogates of one family."""

    def __init__(self, table: RunTable, family: Family) -> None:
        self.name = f"{table.name}:{family}"
        self.menu = table.menu
        self._encoder = Encoder(table.menu)
        keys = list(table.means)
        rows = self._encoder.matrix([table.configs[key] for key in keys])
        scores = np.array([table.means[key] for key in keys])
        self.validation: Validation = validated(family, rows, scores)
        self._scores = ScoreModel(family, rows, scores)
        everything = self._encoder.matrix(list(table.configs.values()))
        self._failures = FailureModel(
            everything, np.array([key in table.failed for key in table.configs])
        )
        self.noise: NoiseModel = noise_of(
            table,
            dict(zip(keys, rows, strict=True)),
            dict(zip(keys, self.validation.predicted.tolist(), strict=True)),
            (self.validation.predicted - scores)[scores <= np.median(scores)],
        )
        self._traces = _traces(table, self._encoder)
        times = [run.train_s for run in table.runs if run.score is not None]
        self._train_s = median(times)
        self.failure_s = median(
            [run.train_s for run in table.runs if run.score is None] or [self._train_s]
        )
        ranked = sorted(keys, key=lambda key: table.means[key])
        self._starts = [table.configs[key] for key in ranked[:STARTS]]
        self._known: dict[str, tuple[float | None, Vector]] = {}

    @cached_property
    def best(self) -> float:
        """Climbed to from the best configs of the table and from random ones."""
        found, _ = climb(self.menu, self._truths, self._starts)
        return found

    def truth(self, config: Config) -> float | None:
        """What the surrogate says."""
        return self._at(config)[0]

    def run(self, config: Config, seed: int) -> Run:
        """The surrogate's score with noise as measured, and the curve of such a run."""
        truth, row = self._at(config)
        if truth is None:
            return Run(self.failure_s, None, status="oom")
        key = config.config_hash
        score = max(truth + self.noise.of(row, key, seed, truth), 0.1 * truth)
        if self._traces is None:
            return Run(self._train_s, score)
        losses, train_s = self._traces.of(row, score, key, seed)
        return Run(train_s, score, losses)

    def _at(self, config: Config) -> tuple[float | None, Vector]:
        key = config.config_hash
        if key not in self._known:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            rows = self._encoder.matrix([config])
            (truth,) = self._of_rows(rows)
            self._known[key] = (truth, rows[0])
        return self._known[key]

    def _truths(self, configs: Sequence[Config]) -> list[float | None]:
        return self._of_rows(self._encoder.matrix(configs)) if configs else []

    def _of_rows(self, rows: Matrix) -> list[float | None]:
        scores, fails = self._scores.predict(rows).tolist(), self._failures.fails(rows).tolist()
        return [None if failed else score for score, failed in zip(scores, fails, strict=True)]


def _traces(table: RunTable, encoder: Encoder) -> TraceModel | None:
    """From the runs that have a whole curve; None where hardly any has."""
    runs = [run for run in table.runs if run.score is not None and run.losses]
    longest = max((len(run.losses) for run in runs), default=0)
    runs = [run for run in runs if len(run.losses) == longest]
    if len(runs) < 30:
        return None
    return TraceModel(
        encoder.matrix([run.config for run in runs]),
        np.array([run.score for run in runs], dtype=np.float64),
        [run.losses for run in runs],
        np.array([run.train_s for run in runs]),
    )
