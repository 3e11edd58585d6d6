"""Race a candidate against its reference, seed by seed, until the judge decides."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from agent.judge import Assessment, Undecided, assess, no_effect
from autoresearch.errors import CampaignError
from trainer.spec import (
    BPB,
    AnyConfig,
    Config,
    CurvePoint,
    Measure,
    PruneRule,
    TrialFailed,
)
from trajectory.evidence import Evidence
from trajectory.ranking import Noise
from trajectory.rows import Decision, Role, TrialRecord
from trajectory.rules import Rules

FEWEST_PRINTED = 5
"""Fewest points of a command's printed curve that must equal another's to call the runs the
same."""


TrialKey: TypeAlias = tuple[str, int, PruneRule | None]
"""Key of a trial within its campaign: config hash, seed and prune rule."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The trial that a race needs next."""

    config: AnyConfig
    seed: int
    role: Role
    prune: PruneRule | None = None
    then: tuple[Wanted, ...] = ()
    """Trials that it would request afterwards, in this order, if it stays undecided."""

    @property
    def key(self) -> TrialKey:
        """Key of the trial; two races that request the same one share it."""
        return self.config.config_hash, self.seed, self.prune


@dataclass(frozen=True, slots=True)
class Outcome:
    """Every trial that was run, and the decision from them."""

    trials: tuple[TrialRecord, ...]
    decision: Decision


TrialSchedule: TypeAlias = Generator[Wanted, TrialRecord, Outcome]
"""Generator of a race: it yields each wanted trial, receives its record, and returns the outcome.
Its driver may do other work in between."""


def not_raced(reference_hash: str, rules: Rules) -> Outcome:
    """Return the outcome of a proposal that the rails refused."""
    why = "nothing was trained: the rails refused the proposal"
    decision = Decision(action="none", reference_hash=reference_hash, rules=rules, explanation=why)
    return Outcome((), decision)


def no_trials() -> TrialSchedule:
    """Return the empty schedule of a proposal that the rails refused."""
    yield from ()
    raise AssertionError("an empty schedule is never advanced")


def known_noise(evidence: Evidence) -> Noise:
    """Return the noise of one run's score.

    :raises CampaignError: if no config was trained on two seeds.
    """
    noise = Noise.of(evidence.tally)
    if noise is None:
        raise CampaignError(
            "the noise is unknown because no config was trained on two seeds; "
            "start the campaign with --baseline-seeds 2 or more"
        )
    return noise


@dataclass(slots=True)
class Race:
    """One race. Create one per candidate and drive :meth:`schedule` once."""

    curve: Callable[[str], list[CurvePoint]]
    """Returns a trial's learning curve, empty if it left none."""
    evidence: Evidence
    """Evidence about the reference. Rows of other races may extend it meanwhile."""
    noise: Callable[[], Noise]
    """Returns the current noise: each interim analysis uses the latest."""
    rules: Rules
    reference: AnyConfig
    candidate: AnyConfig
    first_seed: int
    """Seeds are first_seed, first_seed + 1, …: the same ones for every race of the campaign."""
    prune: PruneRule | None
    """Rule that stops a futile candidate within a trial."""
    on_assessment: Callable[[Assessment], None] = lambda _assessment: None
    measure: Measure = BPB
    _trials: list[TrialRecord] = field(default_factory=list)
    _scores: dict[int, float] = field(default_factory=dict)
    """The candidate's scores by seed."""

    def schedule(self) -> TrialSchedule:
        """Race to a decision.

        A seed on which the reference fails is skipped: it says nothing about the candidate. A
        candidate that fails on any seed is discarded regardless of its other scores: a recipe must
        train reliably.
        """
        decision = yield from self._decided()
        return Outcome(tuple(self._trials), decision)

    def _decided(self) -> Generator[Wanted, TrialRecord, Decision]:
        reference_hash = self.reference.config_hash
        common: dict[int, float] = {}
        scores: dict[int, float] = {}
        standing = Undecided(reference_hash, self.rules)
        for seed in self._seeds:
            if self._has_failed(seed):
                continue
            left = self.rules.max_runs - len(scores)
            reference_score = self._known(seed)
            if reference_score is None:
                reference_score = yield from self._measure(self.reference, seed, left)
            if reference_score is None:
                continue
            common[seed] = reference_score
            score = self._scores.get(seed)
            if score is None:
                score = yield from self._measure(self.candidate, seed, left)
            if score is None:
                return self._failed(seed)
            first, same = not scores, score == reference_score
            if first and same and self._trained_alike(seed):
                printed = not isinstance(self.candidate, Config)
                return no_effect(
                    score, seed, self.rules, reference_hash=reference_hash, printed=printed
                )
            scores[seed] = self._scores[seed] = score
            is_next_known = seed + 1 in self._scores and self._known(seed + 1) is not None
            # as in a race that goes on against another reference
            if len(scores) < self.rules.max_runs and is_next_known:
                continue  # an interim analysis before that pair would ignore a known result
            noise = self.noise()
            assessment = assess(
                scores,
                common,
                noise,
                self.rules,
                reference_hash=reference_hash,
                measure=self.measure,
                # A second pair of a deterministic command would repeat the first.
                certain=noise.sigma == 0 and not isinstance(self.candidate, Config),
            )
            self.on_assessment(assessment)
            if isinstance(assessment, Decision):
                return assessment
            standing = assessment
        return standing.left_open("the reference failed on every seed that was left")

    def _known(self, seed: int) -> float | None:
        """Return the reference's score on a seed, if known."""
        known = self.evidence.configs[self.reference.config_hash].scores.get(seed)
        if known is not None:
            return known
        of_it = (self.reference.config_hash, seed)
        mine = (t for t in self._trials if (t.config_hash, t.seed) == of_it)
        return next((trial.objective for trial in mine), None)

    def _has_failed(self, seed: int) -> bool:
        return seed in self.evidence.configs[self.reference.config_hash].failed_seeds

    @property
    def _seeds(self) -> range:
        return range(self.first_seed, self.first_seed + 2 * self.rules.max_runs)

    def _measure(
        self, config: AnyConfig, seed: int, left: int
    ) -> Generator[Wanted, TrialRecord, float | None]:
        """Run one trial and return its objective.

        :param left: pairs still to come, this seed's included.
        """
        wanted, *then = self._missing(config, seed, left)
        record = yield replace(wanted, then=tuple(then))
        self._trials.append(record)
        return record.objective

    def _missing(self, config: AnyConfig, seed: int, left: int) -> Iterator[Wanted]:
        """Yield the missing trials of this pair and of up to ``left - 1`` pairs after it."""
        if config == self.reference:
            yield Wanted(config, seed, "reference")
        if seed not in self._scores:
            yield Wanted(self.candidate, seed, "candidate", self.prune)
        later = (one for one in self._seeds if one > seed and not self._has_failed(one))
        for one in islice(later, left - 1):
            if self._known(one) is None:
                yield Wanted(self.reference, one, "reference")
            if one not in self._scores:
                yield Wanted(self.candidate, one, "candidate", self.prune)

    def _trained_alike(self, seed: int) -> bool:
        """Return whether candidate and reference left identical curves, every loss to the last bit.

        An unreadable curve proves nothing, so the race continues.
        """
        theirs, ours = self._curve(self.reference, seed), self._curve(self.candidate, seed)
        fewest = 1 if isinstance(self.candidate, Config) else FEWEST_PRINTED
        return len(ours) >= fewest and ours == theirs

    def _curve(self, config: AnyConfig, seed: int) -> list[tuple[int, int | None, float]]:
        known = self.evidence.configs.get(config.config_hash)
        trial_id = None if known is None else known.trial_ids.get(seed)
        if trial_id is None:
            of_it = (config.config_hash, seed)
            mine = (t for t in self._trials if (t.config_hash, t.seed) == of_it)
            trial_id = next(mine).trial_id
        return [(p.step, p.tokens, p.loss) for p in self.curve(trial_id)]

    def _failed(self, seed: int) -> Decision:
        result = self._trials[-1].result
        why = f"{result.status}: {result.message}" if isinstance(result, TrialFailed) else ""
        return Decision(
            action="discard",
            reference_hash=self.reference.config_hash,
            rules=self.rules,
            explanation=f"failed on seed {seed}: {why}",
        )
