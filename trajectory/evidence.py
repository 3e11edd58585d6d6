"""Collect every measurement per config, for the proposers and the judge.

Long runs are left out. They have another budget, so their numbers are on another scale
(:mod:`trajectory.statistics.fidelity` compares the two).

The collection grows one row at a time. An iteration costs the same in a campaign of a hundred
thousand rows as in one of a hundred.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from autoresearch.errors import JournalError
from autoresearch.values import Scalar
from trainer.schema import AnyConfig, TrialFailed
from trajectory.proposals import ModelIdea
from trajectory.rows import BaselineRow, CampaignRow, IterationRow, Row, TrialRecord
from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.intervals import exact_parts
from trajectory.track_record import (
    IDEAS,
    REFUSED_CODE,
    Credit,
    RefusedCode,
    TrackRecord,
    add_iteration,
    credited,
    earned,
    ideas_of,
    refusals_of,
    refused_code,
)


@dataclass(slots=True)
class ConfigEvidence(Measured):
    """One config and all its results."""

    config: AnyConfig
    config_hash: str
    iter: int
    """The iteration that first proposed it; 0 for the baseline."""
    changes: dict[str, Scalar] = field(default_factory=dict)
    """Its changes relative to the reference of that iteration."""
    reason: str = ""
    kind: str = ""
    """Kind of the proposer that first proposed it; empty for the baseline."""
    expected: float | None = None
    """Difference of objectives that a language model expected."""
    action: str = "none"
    """The latest decision on it as a candidate: keep, discard or none."""
    same_as: str | None = None
    """Hash of a config that trained exactly like it: the difference between the two has no
    effect."""
    scores: dict[int, float] = field(default_factory=dict)
    """Seed to objective (val_bpb for the built-in trainer). Each seed counts once, because training
    it again measures nothing new."""
    trial_ids: dict[int, str] = field(default_factory=dict)
    """Seed to the id of the trial that measured its score."""
    failures: list[TrialFailed] = field(default_factory=list)
    failed_seeds: list[int] = field(default_factory=list)
    """Seeds of the failures, in the same order."""
    train_s: float = 0.0
    """Seconds of training, over all runs that ended with a measurement."""
    params: int | None = None
    peak_gib: float | None = None
    """Most memory that one of its runs held, of the GPU if it used one."""
    step_ms: float | None = None
    """Time of a step in its fastest run, which other load disturbed least; None for a command."""

    @property
    def contends(self) -> bool:
        """Whether it may be ranked: it was measured, it failed on no seed, and it did not train
        exactly like its reference.

        A config that failed on one seed is not a usable recipe, and its other seeds alone would
        flatter it. A config that trained exactly like its reference is that reference. Ranked by
        its own single run beside the reference's four, it would rank higher the luckier that run
        was.
        """
        return self.n > 0 and not self.failures and self.same_as is None

    @property
    def sum_of_squares(self) -> float:
        """Sum of squared deviations of the scores from their mean; 0 for fewer than two scores."""
        if self.n < 2 or len(set(self.scores.values())) < 2:  # their mean may differ by rounding
            return 0.0
        mean = self.mean
        return math.fsum((score - mean) ** 2 for score in self.scores.values())


SAME_RUNS = "every run of a config is the same: the seed does nothing here"


class Evidence:
    """Every config with its results, and sums over all of them."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.configs: dict[str, ConfigEvidence] = {}
        """Configs by config_hash, in the order first seen."""
        self._lent: set[str] = set()
        """Configs whose entries a snapshot shares; they are copied before a change."""
        self.track_records: defaultdict[str, TrackRecord] = defaultdict(TrackRecord)
        """Track records by kind of proposer."""
        self.refusals: Counter[str] = Counter()
        """Refusals by rail: proposals that reached no trial, and refused attempts of a language
        model."""
        # A snapshot shares the values of all fields below, so they are replaced, never changed.
        self.limits = (-math.inf, math.inf)
        """Lowest and highest possible objective."""
        self.iterations = 0
        """Number of finished iterations."""
        self.baseline_hash: str | None = None
        """Hash of the baseline; None before it was measured."""
        self.incumbent_hash: str | None = None
        """The best config by evidence, or the baseline if no config was kept.

        If races are against the incumbent, it is the config kept last; if all races are against the
        baseline, it is the kept config with the largest gain.
        """
        self.incumbent_delta = 0.0
        """Its gain over the reference against which it was kept."""
        self.races_ss = 0.0
        """Sum of squares of the paired differences over all races with at least two seeds."""
        self.races_dof = 0
        self.within_ss: tuple[float, ...] = ()
        """Parts of the exact sum of squares within configs."""
        self.within_dof = 0
        self.credits: dict[str, Credit] = {}
        """Credit of the search's and the language model's arms, in alphabetical order."""
        self.earnings: dict[str, Credit] = {}
        """Gains of iterations for code and for numbers, from the first one for code on."""
        self.refused_code: tuple[RefusedCode, ...] = ()
        """The latest sources that a rail for code refused, the oldest first."""
        self.ideas: tuple[ModelIdea, ...] = ()
        """A language model's latest ideas, tried or not."""
        for row in rows:
            self.add(row)

    @property
    def sigma(self) -> float | None:
        """Pooled standard deviation of one run within a config; None before any config was
        replicated."""
        return math.sqrt(math.fsum(self.within_ss) / self.within_dof) if self.within_dof else None

    @property
    def runs_are_the_same(self) -> bool:
        """Whether every replicated config scored exactly the same on all its seeds.

        Then no number of runs can measure the noise.
        """
        return self.sigma == 0.0

    def snapshot(self) -> Evidence:
        """Return a copy that later additions to this one do not change.

        It costs a copy of the dictionary of configs, and later a copy of each shared entry that
        changes.
        """
        taken = copy(self)
        taken.configs = dict(self.configs)
        taken.track_records = deepcopy(self.track_records)
        taken.refusals = self.refusals.copy()
        taken._lent = set(self.configs)
        self._lent = set(self.configs)
        return taken

    def _own(self, config_hash: str) -> ConfigEvidence | None:
        """Return the config's entry for changing; copy it first if a snapshot shares it."""
        entry = self.configs.get(config_hash)
        if entry is not None and config_hash in self._lent:
            self._lent.discard(config_hash)
            lists = ("changes", "scores", "trial_ids", "failures", "failed_seeds")
            copies: dict[str, Any] = {name: copy(getattr(entry, name)) for name in lists}
            entry = self.configs[config_hash] = replace(entry, **copies)
        return entry

    def contenders(self) -> list[ConfigEvidence]:
        """Return the configs that may be ranked, always including the measured baseline."""
        return [
            entry
            for entry in self.configs.values()
            if entry.contends or (entry.n and entry.config_hash == self.baseline_hash)
        ]

    def add(self, row: Row) -> None:
        """Add one row, in the journal's order. Rows of long runs change nothing."""
        if isinstance(row, CampaignRow):
            self.limits = row.measured_in.limits
        if isinstance(row, BaselineRow):
            self._at(row.config, row.config_hash, 0)
            self.baseline_hash = row.config_hash
            self.incumbent_hash = self.incumbent_hash or row.config_hash
            self._record([row.trial])
            return
        if not isinstance(row, IterationRow):
            return
        self.iterations += 1
        add_iteration(self.track_records, row)
        self.credits = credited(self.credits, row)
        self.earnings = earned(self.earnings, row)
        if row.proposer.attempts or row.verdict.rail:
            self.refusals.update(refusals_of(row))
            self.refused_code = (*self.refused_code, *refused_code(row))[-REFUSED_CODE:]
        if row.proposer.ideas:
            self.ideas = (*self.ideas, *ideas_of(row))[-IDEAS:]
        if row.config is None or row.config_hash is None or not row.verdict.allowed:
            return
        entry, decision = self._at(row.config, row.config_hash, row.iter), row.decision
        if row.proposal is not None and not entry.changes and entry.iter == row.iter:
            entry.changes, entry.reason = row.proposal.changes, row.proposal.reason
            entry.kind, entry.expected = row.proposer.kind, row.proposer.expected
        entry.action = decision.action
        if decision.no_effect:
            entry.same_as = decision.reference_hash
        self._record(row.trials)
        delta = decision.delta or 0.0
        is_next = decision.reference_hash == self.incumbent_hash
        if decision.action == "keep" and (is_next or delta < self.incumbent_delta):
            self.incumbent_hash, self.incumbent_delta = row.config_hash, delta
        if decision.pairs > 1:
            self.races_ss += decision.pairs_ss
            self.races_dof += decision.pairs - 1

    def _at(self, config: AnyConfig, config_hash: str, iteration: int) -> ConfigEvidence:
        entry = self._own(config_hash)
        if entry is None:
            entry = ConfigEvidence(config, config_hash, iteration)
            self.configs[config_hash] = entry
        return entry

    def _record(self, trials: Iterable[TrialRecord]) -> None:
        for trial in trials:
            entry = self._own(trial.config_hash)
            if entry is None:
                raise JournalError(
                    f"trial {trial.trial_id} is of config {trial.config_hash[:12]}, which no row "
                    "up to its own describes; the journal was edited, so restore it from a copy"
                )
            result, seed = trial.result, trial.seed
            if isinstance(result, TrialFailed):
                entry.failures.append(result)
                entry.failed_seeds.append(seed)
                continue
            entry.train_s += result.train_s
            entry.params = result.params
            if result.step_ms is not None:
                entry.step_ms = min(entry.step_ms or math.inf, result.step_ms)
            entry.peak_gib = max(entry.peak_gib or 0.0, result.peak_gib or 0.0) or None
            if seed in entry.scores:
                continue
            before = entry.sum_of_squares if entry.scores else None
            entry.scores[seed] = result.objective
            entry.trial_ids[seed] = trial.trial_id
            if before is not None:
                self.within_ss = exact_parts([*self.within_ss, -before, entry.sum_of_squares])
                self.within_dof += 1
