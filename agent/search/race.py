"""Race a candidate against its reference, seed by seed, until the judge decides.

Futile trials stop after a third of the budget, by the reference's own learning curves. There, the
reference's training loss, averaged over a short window, is known on several seeds. A candidate is
stopped if its loss exceeds the reference's mean by ``MARGIN_SDS`` standard deviations and by at
least ``MARGIN_NATS``. The margin is wide on purpose. After a third of 60 steps, learning rates and
warm-ups that end level may still be tenths of a nat apart. A wrongly pruned idea is lost, while a
spared one costs two thirds of a trial.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from agent.judge import Assessment, Undecided, assess, no_effect
from agent.search.campaign import Campaign
from trainer.schema import (
    BPB,
    AnyConfig,
    Budget,
    CurvePoint,
    Measure,
    PruneRule,
    TrialFailed,
)
from trajectory.evidence import Evidence
from trajectory.ranking import Noise
from trajectory.rows import Decision, Role, Rules, TrialRecord

FEWEST_PRINTED = 5
"""Fewest points of a command's printed curve that must equal another's to call the runs the
same."""
REFUSED = "nothing was trained: the rails refused the proposal"


RunTrial: TypeAlias = Callable[[AnyConfig, int, Role, PruneRule | None], Awaitable[TrialRecord]]
"""Runs the trial of a config on a seed, with the rule that stops it early."""


def decided(
    action: Literal["none", "discard"], reference_hash: str, rules: Rules, why: str
) -> Decision:
    """Return a decision without a comparison."""
    return Decision(
        action=action, reference_hash=reference_hash, **rules.model_dump(), explanation=why
    )


@dataclass(slots=True)
class Race:
    """One race. Create one per candidate and await :meth:`run` once."""

    trial: RunTrial
    curve: Callable[[str], list[CurvePoint]]
    """Returns a trial's learning curve, empty if it left none."""
    evidence: Evidence
    """Evidence about the reference. Rows of other races may extend it meanwhile."""
    rules: Rules
    reference: AnyConfig
    reference_now: Callable[[], AnyConfig]
    """Returns the campaign's reference, which other races may replace."""
    candidate: AnyConfig
    first_seed: int
    """Seeds on which the reference was not yet run are first_seed, first_seed + 1, …"""
    prune: PruneRule | None
    """Rule that stops a futile candidate within a trial."""
    on_assessment: Callable[[Assessment], None] = lambda _assessment: None
    measure: Measure = BPB
    trials: list[TrialRecord] = field(default_factory=list)
    """Every trial that was run."""
    _scores: dict[int, float] = field(default_factory=dict)
    """The candidate's scores by seed."""

    async def run(self) -> Decision:
        """Run one trial after another, and return the decision.

        A discard is final. A candidate that beat a reference which others replaced meanwhile is
        judged against the new one, on their common seeds and by the same rules, until it is
        discarded or has beaten the current reference.

        A seed on which the reference fails is skipped: it says nothing about the candidate. A
        candidate that fails on any seed is discarded regardless of its other scores: a recipe must
        train reliably.
        """
        decision = await self._compare()
        while decision.action == "keep":
            replaced, self.reference = self.reference, self.reference_now()
            if self.reference == replaced:
                break
            first = decision
            decision = await self._compare()
            why = (
                f"{decision.explanation}; kept against {replaced.config_hash[:12]} before that was "
                f"replaced ({first.explanation})"
            )
            decision = decision.model_copy(update={"explanation": why})
        return decision

    async def _compare(self) -> Decision:
        """Return the decision against the reference as it is now."""
        reference_hash = self.reference.config_hash
        scores: dict[int, float] = {}
        standing = Undecided(reference_hash, self.rules)
        for seed in self.seeds():
            if seed in self.evidence.configs[reference_hash].failed_seeds:
                continue
            reference_score = self._known().get(seed)
            if reference_score is None:
                reference_score = await self._measure(self.reference, seed)
            if reference_score is None:
                continue
            score = self._scores.get(seed)
            if score is None:
                score = await self._measure(self.candidate, seed)
            if score is None:
                result = self.trials[-1].result
                assert isinstance(result, TrialFailed)
                why = f"failed on seed {seed}: {result.status}: {result.message}"
                return decided("discard", reference_hash, self.rules, why)
            known = self._known()
            if alike := self._no_effect(seed, {**scores, seed: score}, known):
                return alike
            scores[seed] = self._scores[seed] = score
            # as in a race that goes on against another reference
            if len(scores) < self.rules.max_runs and known.keys() & self._scores.keys() - scores:
                continue  # an interim analysis now would ignore a known pair
            noise = self.noise()
            assessment = assess(
                scores,
                known,
                noise,
                self.rules,
                reference_hash=reference_hash,
                measure=self.measure,
                # A second pair of a deterministic command would repeat the first.
                certain=noise.sigma == 0 and self.candidate.is_printed,
            )
            self.on_assessment(assessment)
            if isinstance(assessment, Decision):
                return assessment
            standing = assessment
        return standing.left_open("the reference failed on every seed that was left")

    def _no_effect(
        self, seed: int, scores: Mapping[int, float], known: Mapping[int, float]
    ) -> Decision | None:
        """Return the decision on a candidate that trained like the reference: with its curve on the
        first seed, or with its scores on two seeds; None on any other."""
        if any(known[one] != score for one, score in scores.items()):
            return None
        if len(scores) == 1 and not self._trained_alike(seed):
            return None
        return no_effect(
            scores[seed],
            seed,
            self.rules,
            reference_hash=self.reference.config_hash,
            printed=self.candidate.is_printed,
            pairs=len(scores),
        )

    def noise(self) -> Noise:
        """Return the latest noise, as other races go on."""
        noise = Noise.of(self.evidence)
        assert noise is not None, "the baseline was trained on two seeds or more"
        return noise

    def seeds(self) -> list[int]:
        """Return the seeds in the order of the race: first those that need the fewest runs, and
        among them the ones on which the reference's own run is nearest to its median.

        They are more than it takes, since the reference may fail on some. Near its median, a run of
        the reference is close to its mean, so it hardly matters what the judge knows of ``shared``.
        """
        known = self._known()
        ranked = sorted(known, key=lambda seed: (known[seed], seed))
        from_median = {seed: abs(2 * rank + 1 - len(known)) for rank, seed in enumerate(ranked)}

        def cost(seed: int) -> tuple[int, int, int]:
            runs = (seed not in known) + (seed not in self._scores)
            return runs, from_median.get(seed, 0), seed

        fresh = range(self.first_seed, self.first_seed + 2 * self.rules.max_runs)
        return sorted({*fresh, *known}, key=cost)

    def _known(self) -> dict[int, float]:
        """Return the reference's known scores by seed."""
        reference_hash = self.reference.config_hash
        known = dict(self.evidence.configs[reference_hash].scores)
        for one in self.trials:
            if one.config_hash == reference_hash and one.objective is not None:
                known.setdefault(one.seed, one.objective)
        return known

    def _own(self, config: AnyConfig, seed: int) -> Iterator[TrialRecord]:
        """Yield the race's own trials of a config on a seed."""
        wanted = config.config_hash, seed
        return (one for one in self.trials if (one.config_hash, one.seed) == wanted)

    async def _measure(self, config: AnyConfig, seed: int) -> float | None:
        """Run one trial and return its objective."""
        if config == self.reference:
            record = await self.trial(config, seed, "reference", None)
        else:
            record = await self.trial(config, seed, "candidate", self.prune)
        self.trials.append(record)
        return record.objective

    def _trained_alike(self, seed: int) -> bool:
        """Return whether candidate and reference left identical curves, every loss to the last bit.

        An unreadable curve proves nothing, so the race continues.
        """
        theirs, ours = self._curve(self.reference, seed), self._curve(self.candidate, seed)
        fewest = FEWEST_PRINTED if self.candidate.is_printed else 1
        return len(ours) >= fewest and ours == theirs

    def _curve(self, config: AnyConfig, seed: int) -> list[tuple[int, int | None, float]]:
        known = self.evidence.configs.get(config.config_hash)
        trial_id = None if known is None else known.trial_ids.get(seed)
        if trial_id is None:
            trial_id = next(self._own(config, seed)).trial_id
        return [(p.step, p.tokens, p.loss) for p in self.curve(trial_id)]


# --- futile trials within a race -------------------------------------------------------------

FRACTION = 1 / 3
MARGIN_SDS = 8.0
MARGIN_NATS = 0.3


def prune_rule(
    reference_curves: Iterable[Sequence[CurvePoint]],
    reference: AnyConfig,
    candidate: AnyConfig,
    budget: Budget,
) -> PruneRule | None:
    """Return the rule for a candidate, or None if no fair rule exists.

    A fair rule needs two of the reference's curves, and a budget in steps or tokens that is long
    enough to have a third.

    :param reference_curves: one per seed, in ascending steps.
    """
    places = []
    for config in (reference, candidate):
        steps = budget.steps(config.tokens_per_step)
        if steps is None or round(steps * FRACTION) < 3:
            return None
        at_step = round(steps * FRACTION)
        places.append((at_step, max(1, min(at_step, steps // 12))))
    (there, before), (at_step, window) = places
    windows = (
        [point.loss for point in curve if there - before < point.step <= there]
        for curve in reference_curves
    )
    losses = [fmean(each) for each in windows if each]
    if len(losses) < 2:
        return None
    margin = max(MARGIN_SDS * stdev(losses), MARGIN_NATS)
    return PruneRule(at_step=at_step, window=window, max_loss=fmean(losses) + margin)


def race_prune_rule(
    campaign: Campaign,
    reference: AnyConfig,
    candidate: AnyConfig | None,
    curve: Callable[[str], list[CurvePoint]],
) -> PruneRule | None:
    """Return the rule that stops trials of the candidate early, from the reference's present
    curves, which ``curve`` reads; None if there is none."""
    settings = campaign.settings
    if candidate is None or not (settings.prune and campaign.prunes):
        return None
    trials = campaign.evidence.configs[reference.config_hash].trial_ids.values()
    return prune_rule(map(curve, trials), reference, candidate, settings.budget)
