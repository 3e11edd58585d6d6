"""All that was measured so far, gathered per config: what proposers see and the judge weighs.

It grows a row at a time, so that a campaign of a hundred thousand rows costs no more per iteration
than one of a hundred.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from trainer.spec import Config, Scalar, TrialFailed
from trajectory.rows import BaselineRow, IterationRow, Row, TrialRecord


@dataclass(slots=True)
class ConfigEvidence:
    """One config and every result it has."""

    config: Config
    config_hash: str
    iter: int
    """The iteration that first proposed it; 0 for the baseline."""
    changes: Mapping[str, Scalar] = field(default_factory=dict)
    """Against the reference of that iteration."""
    reason: str = ""
    action: str = "none"
    """The latest decision on it as a candidate: keep, discard or none."""
    scores: dict[int, float] = field(default_factory=dict)
    """Seed to val_bpb. A seed counts once: training it again measures nothing new."""
    failures: list[TrialFailed] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Seeds measured."""
        return len(self.scores)

    @property
    def mean(self) -> float:
        """Mean val_bpb; raises StatisticsError where nothing was measured."""
        return fmean(self.scores.values())

    @property
    def sum_of_squares(self) -> float:
        """Of the scores about their mean; 0 for fewer than two."""
        if self.n < 2:
            return 0.0
        mean = self.mean
        return math.fsum((score - mean) ** 2 for score in self.scores.values())


class Evidence:
    """Every config with its results, and the noise they share."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.configs: dict[str, ConfigEvidence] = {}
        """By config_hash, in the order first seen."""
        self.iterations = 0
        """Finished ones."""
        self.refusals: Counter[str] = Counter()
        """By rail, of proposals that reached no trial and of an LLM's refused attempts."""
        self._sum_of_squares = 0.0
        self._dof = 0
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Take in one row, in the journal's order."""
        if isinstance(row, BaselineRow):
            self._at(row.config, row.config_hash, 0)
            self._record(row.trial)
        elif isinstance(row, IterationRow):
            self.iterations += 1
            self._count_refusals(row)
            if row.config is None or row.config_hash is None:
                return
            entry = self._at(row.config, row.config_hash, row.iter)
            if row.proposal is not None and not entry.changes and entry.iter == row.iter:
                entry.changes, entry.reason = row.proposal.changes, row.proposal.reason
            entry.action = row.decision.action
            for trial in row.trials:
                self._record(trial)

    @property
    def sigma(self) -> float | None:
        """Pooled sd of one run within a config; None before any config was replicated."""
        return math.sqrt(self._sum_of_squares / self._dof) if self._dof else None

    @property
    def dof(self) -> int:
        """Degrees of freedom behind :attr:`sigma`."""
        return self._dof

    def _at(self, config: Config, config_hash: str, iteration: int) -> ConfigEvidence:
        entry = self.configs.get(config_hash)
        if entry is None:
            entry = ConfigEvidence(config, config_hash, iteration)
            self.configs[config_hash] = entry
        return entry

    def _record(self, trial: TrialRecord) -> None:
        entry = self.configs[trial.config_hash]
        if isinstance(trial.result, TrialFailed):
            entry.failures.append(trial.result)
            return
        if trial.seed in entry.scores:
            return
        self._sum_of_squares -= entry.sum_of_squares
        entry.scores[trial.seed] = trial.result.val_bpb
        self._sum_of_squares += entry.sum_of_squares
        self._dof += entry.n > 1

    def _count_refusals(self, row: IterationRow) -> None:
        for attempt in row.proposer.attempts:
            if attempt.verdict is not None and attempt.verdict.rail is not None:
                self.refusals[attempt.verdict.rail] += 1
        if row.verdict.rail is not None:
            self.refusals[row.verdict.rail] += 1
