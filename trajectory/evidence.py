"""All that was measured so far, gathered per config: what proposers see and the judge weighs.

Long runs are left out: they have another budget, so their numbers belong to another scale
(:mod:`trajectory.statistics.fidelity` compares the two).

It grows a row at a time, so that a campaign of a hundred thousand rows costs no more per iteration
than one of a hundred.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Self

from pydantic import Field

from autoresearch.errors import JournalError
from autoresearch.values import Frozen, Scalar
from autoresearch.words import counted
from trainer.spec import AnyConfig, Measured, TrialFailed, TrialOk
from trajectory.rows import BaselineRow, Decision, EventRow, IterationRow, Row, TrialRecord
from trajectory.statistics.exact import ExactSum
from trajectory.track_record import TrackRecord, recorded


@dataclass(slots=True)
class ConfigEvidence:
    """One config and every result it has."""

    config: AnyConfig
    config_hash: str
    iter: int
    """The iteration that first proposed it; 0 for the baseline."""
    changes: dict[str, Scalar] = field(default_factory=dict)
    """Against the reference of that iteration."""
    reason: str = ""
    action: str = "none"
    """The latest decision on it as a candidate: keep, discard or none."""
    same_as: str | None = None
    """The hash of a config that it trained exactly like: what tells the two apart does nothing."""
    scores: dict[int, float] = field(default_factory=dict)
    """Seed to objective, which is val_bpb of the built-in trainer. A seed counts once: training it
    again measures nothing new."""
    trial_ids: dict[int, str] = field(default_factory=dict)
    """Seed to the trial behind its score."""
    failures: list[TrialFailed] = field(default_factory=list)
    failed_seeds: list[int] = field(default_factory=list)
    """The seeds of the failures, in their order."""
    train_s: float = 0.0
    """Seconds spent training it, over every run that ended in a measurement."""
    params: int | None = None

    @property
    def n(self) -> int:
        """Seeds measured."""
        return len(self.scores)

    @property
    def contends(self) -> bool:
        """Whether a ranking has a place for it: it was measured, on every seed that it was tried
        on, and is not another config in other words.

        One that failed on a seed is no recipe, and its other seeds alone would flatter it. One
        that trained exactly like its reference is that reference; its single run would stand
        beside the reference's four as a recipe of its own, and the luckier it was the higher.
        """
        return self.n > 0 and not self.failures and self.same_as is None

    @property
    def mean(self) -> float:
        """Mean objective; raises StatisticsError where nothing was measured."""
        return fmean(self.scores.values())

    @property
    def sum_of_squares(self) -> float:
        """Sum of squares of the scores about their mean; 0 for fewer than two."""
        if len(set(self.scores.values())) < 2:  # equal ones differ from their mean by rounding
            return 0.0
        mean = self.mean
        return math.fsum((score - mean) ** 2 for score in self.scores.values())


class Tally(Frozen):
    """What :class:`Evidence` knows beside its configs: small, however long the campaign."""

    iterations: int = 0
    """Finished ones."""
    baseline_hash: str | None = None
    incumbent_hash: str | None = None
    """The best config by evidence: the last kept in a race against the incumbent, or with the
    largest gain where all races are against the baseline. The baseline before any was kept."""
    incumbent_delta: float = 0.0
    """What it gained over the reference it was kept against."""
    interrupted: tuple[str, ...] = ()
    """Trials that events say were cut short and count for nothing, sorted."""
    refusals: dict[str, int] = Field(default_factory=dict)
    """By rail, in alphabetical order, of proposals that reached no trial and of an LLM's refused
    attempts."""
    races_ss: float = 0.0
    """Sum of squares of the paired differences of every race of two seeds or more."""
    races_dof: int = 0
    within_ss: tuple[float, ...] = ()
    """Parts of the exact sum of squares within configs."""
    within_dof: int = 0
    track_records: dict[str, TrackRecord] = Field(default_factory=dict)
    """By kind of proposer, in alphabetical order."""

    @property
    def sigma(self) -> float | None:
        """Pooled sd of one run within a config; None before any config was replicated."""
        return math.sqrt(math.fsum(self.within_ss) / self.within_dof) if self.within_dof else None

    @property
    def runs_are_the_same(self) -> bool:
        """Whether every config that was replicated scored the same on every seed, to the last
        digit: then no number of runs says anything about chance."""
        return self.sigma == 0.0


SAME_RUNS = "every run of a config is the same: the seed does nothing here"


class Evidence:
    """Every config with its results, and the tally of the campaign."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.configs: dict[str, ConfigEvidence] = {}
        """By config_hash, in the order first seen."""
        self.tally = Tally()
        self._lent: set[str] = set()
        """The configs whose entries a snapshot has too: they are replaced, not changed."""
        for row in rows:
            self.add(row)

    @classmethod
    def restore(cls, tally: Tally, configs: Iterable[ConfigEvidence]) -> Self:
        """The evidence that had this tally and these configs, in this order.

        With some of the configs only, it takes in rows about those as the whole would.
        """
        evidence = cls()
        evidence.tally = tally
        evidence.configs = {entry.config_hash: entry for entry in configs}
        return evidence

    def snapshot(self) -> Evidence:
        """All of it as it is now: what is added here later changes nothing there. Costs as much as
        a copy of the dictionary of configs, and an entry's each time that a lent one changes."""
        taken = Evidence()
        taken.tally = self.tally
        taken.configs = dict(self.configs)
        self._lent = set(self.configs)
        return taken

    def _own(self, config_hash: str) -> ConfigEvidence | None:
        """The config's entry, to be changed."""
        entry = self.configs.get(config_hash)
        if entry is not None and config_hash in self._lent:
            self._lent.discard(config_hash)
            entry = self.configs[config_hash] = replace(
                entry,
                changes=dict(entry.changes),
                scores=dict(entry.scores),
                trial_ids=dict(entry.trial_ids),
                failures=list(entry.failures),
                failed_seeds=list(entry.failed_seeds),
            )
        return entry

    @property
    def iterations(self) -> int:
        """Finished ones."""
        return self.tally.iterations

    @property
    def baseline_hash(self) -> str | None:
        """None before the baseline was measured."""
        return self.tally.baseline_hash

    @property
    def incumbent_hash(self) -> str | None:
        """See :attr:`Tally.incumbent_hash`."""
        return self.tally.incumbent_hash

    @property
    def refusals(self) -> Counter[str]:
        """See :attr:`Tally.refusals`."""
        return Counter(self.tally.refusals)

    def track_record(self, kind: str) -> TrackRecord:
        """Of a kind of proposer; an empty one before its first turn."""
        return self.tally.track_records.get(kind, TrackRecord())

    @property
    def sigma(self) -> float | None:
        """See :attr:`Tally.sigma`."""
        return self.tally.sigma

    @property
    def dof(self) -> int:
        """Degrees of freedom behind :attr:`sigma`."""
        return self.tally.within_dof

    def contenders(self) -> list[ConfigEvidence]:
        """The configs that a ranking has a place for, the measured baseline always."""
        return [
            entry
            for entry in self.configs.values()
            if entry.contends or (entry.n and entry.config_hash == self.baseline_hash)
        ]

    def add(self, row: Row) -> None:
        """Take in one row, in the journal's order. Rows of long runs change nothing."""
        if isinstance(row, BaselineRow):
            self._at(row.config, row.config_hash, 0)
            incumbent_hash = self.incumbent_hash or row.config_hash
            self._count(baseline_hash=row.config_hash, incumbent_hash=incumbent_hash)
            self._record(row.trial)
        elif isinstance(row, EventRow):
            interrupted = {*self.tally.interrupted, *row.trial_ids}
            self._count(interrupted=tuple(sorted(interrupted)))
        elif isinstance(row, IterationRow):
            refusals = self.refusals + _refusals(row)
            self._count(
                iterations=self.iterations + 1,
                refusals=dict(sorted(refusals.items())),
                track_records=recorded(self.tally.track_records, row),
            )
            if row.config is None or row.config_hash is None or not row.verdict.allowed:
                return
            entry = self._at(row.config, row.config_hash, row.iter)
            if row.proposal is not None and not entry.changes and entry.iter == row.iter:
                entry.changes, entry.reason = row.proposal.changes, row.proposal.reason
            entry.action = row.decision.action
            if row.decision.no_effect:
                entry.same_as = row.decision.reference_hash
            if row.decision.action == "keep":
                self._kept(row.config_hash, row.decision)
            if row.decision.pairs > 1:
                self._count(
                    races_ss=self.tally.races_ss + row.decision.pairs_ss,
                    races_dof=self.tally.races_dof + row.decision.pairs - 1,
                )
            for trial in row.trials:
                self._record(trial)

    def _count(self, **changed: Any) -> None:
        self.tally = self.tally.model_copy(update=changed)

    def _kept(self, config_hash: str, decision: Decision) -> None:
        delta = decision.delta or 0.0
        if decision.reference_hash == self.incumbent_hash or delta < self.tally.incumbent_delta:
            self._count(incumbent_hash=config_hash, incumbent_delta=delta)

    def _at(self, config: AnyConfig, config_hash: str, iteration: int) -> ConfigEvidence:
        entry = self._own(config_hash)
        if entry is None:
            entry = ConfigEvidence(config, config_hash, iteration)
            self.configs[config_hash] = entry
        return entry

    def _record(self, trial: TrialRecord) -> None:
        entry = self._own(trial.config_hash)
        if entry is None:
            raise JournalError(
                f"trial {trial.trial_id} is of config {trial.config_hash[:12]}, which no row up to "
                "its own describes; the journal was edited, so restore it from a copy"
            )
        if isinstance(trial.result, TrialFailed):
            entry.failures.append(trial.result)
            entry.failed_seeds.append(trial.seed)
            return
        entry.train_s += trial.result.train_s
        if isinstance(trial.result, TrialOk):
            entry.params = trial.result.params
        if trial.seed not in entry.scores:
            self._measured(entry, trial.seed, trial.trial_id, trial.result)

    def _measured(self, entry: ConfigEvidence, seed: int, trial_id: str, result: Measured) -> None:
        within = ExactSum(self.tally.within_ss)
        within.add(-entry.sum_of_squares)
        entry.scores[seed] = result.objective
        entry.trial_ids[seed] = trial_id
        within.add(entry.sum_of_squares)
        self._count(within_ss=within.parts, within_dof=self.dof + (entry.n > 1))


@dataclass(frozen=True, slots=True)
class Unranked:
    """How many measured configs have no place in the ranking, and why."""

    failed: int
    """On one of their seeds."""
    same: int
    """As another: they trained exactly like it."""

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Of a whole campaign."""
        ranked = {entry.config_hash for entry in evidence.contenders()}
        left = [
            entry
            for entry in evidence.configs.values()
            if entry.n and entry.config_hash not in ranked
        ]
        failed = sum(bool(entry.failures) for entry in left)
        return cls(failed, len(left) - failed)

    def __str__(self) -> str:
        """A line, empty where there are none."""
        clauses = []
        if self.failed:
            clauses.append(f"{counted(self.failed, 'config')} that failed on one of the seeds")
        if self.same:
            clauses.append(f"{counted(self.same, 'config')} that trained exactly like another")
        return f"not ranked: {' and '.join(clauses)}" if clauses else ""


def _refusals(row: IterationRow) -> Counter[str]:
    """By rail: of the proposal and of an LLM's attempts."""
    verdicts = [attempt.verdict for attempt in row.proposer.attempts]
    if not _is_last_attempt(row):
        verdicts.append(row.verdict)
    return Counter(verdict.rail for verdict in verdicts if verdict and verdict.rail)


def _is_last_attempt(row: IterationRow) -> bool:
    """Whether the row's refusal is of the proposal that the last attempt already counts."""
    attempts = row.proposer.attempts
    return bool(attempts) and not row.proposer.fallback and attempts[-1].verdict == row.verdict
