"""A candidate against its reference, seed by seed, until the judge has seen enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from agent.judge import Assessment, Undecided, assess, no_effect
from agent.search.pruning import prune_rule
from autoresearch.errors import CampaignError
from trainer.spec import (
    BPB,
    AnyConfig,
    Budget,
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
"""Points of a command's curve, printed to a few digits, that must be another's to call it the same.
"""


class Runner(Protocol):
    """Whoever runs a race's trials (:class:`agent.search.trials.TrialRunner`)."""

    def run(
        self, config: AnyConfig, seed: int, role: Role, prune: PruneRule | None = None
    ) -> TrialRecord: ...
    def curve(self, trial_id: str) -> list[CurvePoint]: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Every trial that was run, and what was decided from them."""

    trials: tuple[TrialRecord, ...]
    decision: Decision


def not_raced(reference_hash: str, rules: Rules) -> Outcome:
    """The outcome of a proposal that the rails refused."""
    why = "nothing was trained: the rails refused the proposal"
    decision = Decision(action="none", reference_hash=reference_hash, rules=rules, explanation=why)
    return Outcome((), decision)


def known_noise(evidence: Evidence) -> Noise:
    """What one run's number is worth.

    :raises CampaignError: where no config was trained on two seeds.
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
    """One race. Make one per candidate and call :meth:`run` once."""

    runner: Runner
    evidence: Evidence
    noise: Noise
    rules: Rules
    reference: AnyConfig
    candidate: AnyConfig
    first_seed: int
    """Seeds are first_seed, first_seed + 1, …: the same ones for every race of the campaign."""
    prune: Budget | None
    """The trials' budget, where a hopeless candidate is to be stopped within it."""
    on_assessment: Callable[[Assessment], None] = lambda _assessment: None
    measure: Measure = BPB
    _trials: list[TrialRecord] = field(default_factory=list)

    def run(self) -> Outcome:
        """Race to a decision.

        A seed on which the reference itself fails is skipped: it says nothing about the candidate.
        A candidate that fails on any seed is discarded, whatever its other seeds said: a recipe
        that cannot be relied on to train is no recipe.
        """
        decision = self._decided()
        return Outcome(tuple(self._trials), decision)

    def _decided(self) -> Decision:
        reference_hash = self.reference.config_hash
        known = self.evidence.configs[reference_hash]
        reference_scores = dict(known.scores)
        reference_trials = dict(known.trial_ids)
        candidate_scores: dict[int, float] = {}
        prune = self._prune_rule(known.trial_ids.values())
        standing = Undecided(reference_hash, self.rules)
        for seed in range(self.first_seed, self.first_seed + 2 * self.rules.max_runs):
            if seed in known.failed_seeds:
                continue
            if seed not in reference_scores:
                score = self._measure(self.reference, seed, "reference", None)
                if score is None:
                    continue
                reference_scores[seed] = score
                reference_trials[seed] = self._trials[-1].trial_id
            score = self._measure(self.candidate, seed, "candidate", prune)
            if score is None:
                return self._failed(seed)
            first, same = not candidate_scores, score == reference_scores[seed]
            if first and same and self._trained_alike(reference_trials[seed]):
                printed = not isinstance(self.candidate, Config)
                return no_effect(
                    score, seed, self.rules, reference_hash=reference_hash, printed=printed
                )
            candidate_scores[seed] = score
            assessment = assess(
                candidate_scores,
                reference_scores,
                self.noise,
                self.rules,
                reference_hash=reference_hash,
                measure=self.measure,
                certain=self._is_certain,
            )
            self.on_assessment(assessment)
            if isinstance(assessment, Decision):
                return assessment
            standing = assessment
        return standing.left_open("the reference failed on every seed that was left")

    @property
    def _is_certain(self) -> bool:
        """Whether a second pair would be the first once more, as of a command without chance."""
        return self.noise.sigma == 0 and not isinstance(self.candidate, Config)

    def _prune_rule(self, reference_trials: Iterable[str]) -> PruneRule | None:
        if self.prune is None:
            return None
        curves = [self.runner.curve(trial) for trial in reference_trials]
        return prune_rule(curves, self.reference, self.candidate, self.prune)

    def _measure(
        self, config: AnyConfig, seed: int, role: Role, prune: PruneRule | None
    ) -> float | None:
        record = self.runner.run(config, seed, role, prune)
        self._trials.append(record)
        return record.objective

    def _trained_alike(self, reference_trial: str) -> bool:
        """Whether the trial just run left the very curve that one did, every loss to the last bit.

        What cannot be read proves nothing, so the race goes on.
        """
        theirs = [(p.step, p.tokens, p.loss) for p in self.runner.curve(reference_trial)]
        ours = [(p.step, p.tokens, p.loss) for p in self.runner.curve(self._trials[-1].trial_id)]
        fewest = 1 if isinstance(self.candidate, Config) else FEWEST_PRINTED
        return len(ours) >= fewest and ours == theirs

    def _failed(self, seed: int) -> Decision:
        result = self._trials[-1].result
        why = f"{result.status}: {result.message}" if isinstance(result, TrialFailed) else ""
        return Decision(
            action="discard",
            reference_hash=self.reference.config_hash,
            rules=self.rules,
            explanation=f"failed on seed {seed}: {why}",
        )
