"""Decide whether a candidate is kept or discarded, by evidence against luck.

A candidate and its reference are measured on common seeds. On each of them, the candidate is
compared with the best linear prediction of the reference's run on that seed::

    predicted = mean + shared (run - mean)

``mean`` is that of all n runs of the reference, and ``shared`` is the share of a run's variance
that its seed explains. If a seed determines everything, this is the reference's own run, so the
seed's effect cancels in the difference. If it determines nothing, this is the mean, so that no
lucky run of the reference decides a race. Between the two it has the least variance (the regression
estimate of double sampling; Cochran, Sampling Techniques, 1977, chapter 12). With k common seeds,
``delta``, the mean of candidate minus prediction, has the standard error ::

    sigma_d sqrt(((1 + shared) / k + (1 - shared) / n) / 2)

``sigma_d`` is the sd of the difference of two runs on one seed, pooled over the campaign's races,
and ``shared`` is ``1 - sigma_d² / (2 sigma²)``. Before the first race ``sigma_d`` is ``sqrt(2)
sigma`` from the replicated baseline, as if seeds shared nothing, which is cautious. That prior
keeps the weight of four degrees of freedom (:class:`trajectory.ranking.Noise`).

After each pair, the judge decides one of three things:

- **discard**: after the first pair, if the candidate is worse by more than
  ``early_stopping_threshold`` times ``sigma_d``. After a later pair, if the race's last pair would
  leave it short of the bar even if its true gain were ``z_drop`` standard errors better than
  measured. Most bad ideas cost one run.
- **keep**: at the last pair, if ``-delta / stderr >= z_keep``; at an earlier pair, the second or
  later, if ``z >= Z_OBVIOUS``. Keeping at the first lucky result after any pair would keep more
  candidates without a gain (Armitage, McPherson and Rowe 1969).
- :class:`Undecided`: the race continues with one more common seed.

If sigma_d were known, the probability of keeping a candidate without a gain would be below the tail
probability at z_keep. But sigma_d is estimated, at first from a few runs, so a campaign's first
races have no such guarantee. Nor is it one for a whole campaign: of a hundred ideas without a gain,
some are kept. docs/decisions.md has the simulated rates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, Self, TypeAlias

from autoresearch.words import counted
from trainer.schema import BPB, Measure
from trajectory.ranking import Noise
from trajectory.rows import Decision, Rules


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate compared with its reference on their common seeds, in objectives."""

    reference_hash: str
    reference_objective: float
    """Predicted mean over the common seeds."""
    estimate_objective: float
    """The candidate's mean over the same seeds."""
    delta: float
    """Estimate minus reference; negative is better."""
    pairs: int
    pairs_ss: float
    """Sum of squares of the two configs' differences about their mean."""
    reference_runs: int
    """The reference's runs, on common and other seeds."""
    noise: Noise
    measure: Measure = BPB

    @classmethod
    def of(
        cls,
        candidate: Mapping[int, float],
        reference: Mapping[int, float],
        noise: Noise,
        reference_hash: str,
        measure: Measure,
    ) -> Self:
        """Compare objectives by seed; see :func:`assess`."""
        seeds = sorted(candidate.keys() & reference.keys())
        differences = [candidate[seed] - reference[seed] for seed in seeds]
        paired, estimate = fmean(differences), fmean(candidate[seed] for seed in seeds)
        luck = fmean(reference[seed] for seed in seeds) - fmean(reference.values())
        delta = paired + (1 - noise.shared) * luck
        return cls(
            reference_hash=reference_hash,
            reference_objective=estimate - delta,
            estimate_objective=estimate,
            delta=delta,
            pairs=len(seeds),
            pairs_ss=math.fsum((d - paired) ** 2 for d in differences) if len(seeds) > 1 else 0.0,
            reference_runs=len(reference),
            noise=noise,
            measure=measure,
        )

    @property
    def stderr(self) -> float:
        """Standard error of ``delta``."""
        return self.noise.stderr(self.pairs, self.reference_runs)

    @property
    def z(self) -> float:
        """Standard errors by which the candidate is better."""
        if self.stderr > 0:
            return -self.delta / self.stderr
        return math.copysign(math.inf, -self.delta) if self.delta else 0.0

    def decision(self, action: Literal["keep", "discard"], rules: Rules, why: str) -> Decision:
        """Return the decision, with every number that it was made from."""
        return Decision(
            action=action,
            reference_hash=self.reference_hash,
            reference_objective=self.reference_objective,
            estimate_objective=self.estimate_objective,
            delta=self.delta,
            stderr=self.stderr,
            sigma=self.noise.sigma_d,
            pairs=self.pairs,
            pairs_ss=self.pairs_ss,
            z=max(-1e6, min(1e6, self.z)),
            **rules.model_dump(),
            explanation=f"{self}: {why}",
        )

    def __str__(self) -> str:
        seeds = counted(self.pairs, "common seed")
        measure = self.measure
        delta, stderr = measure.signed(self.delta), measure.size(self.stderr)
        return f"{delta} {measure.short} (se {stderr}) on {seeds}"


@dataclass(frozen=True, slots=True)
class Undecided:
    """An open race: the candidate is neither kept nor discarded, and the race continues with one
    more common seed."""

    reference_hash: str
    rules: Rules
    seen: Comparison | None = None
    """None before the race's first pair."""

    @property
    def explanation(self) -> str:
        """A sentence on the result of the pairs so far."""
        return f"{self.seen or 'no common seed'}: undecided so far"

    def left_open(self, why: str) -> Decision:
        """Return the decision that is recorded if no seed is left to race on.

        Rows have no action for an open race. The action is ``discard``, which only means that the
        reference stays. The explanation says that nothing was proven.
        """
        if self.seen is not None:
            return self.seen.decision("discard", self.rules, f"undecided, since {why}")
        return Decision(
            action="discard",
            reference_hash=self.reference_hash,
            **self.rules.model_dump(),
            explanation=f"undecided: there is no measurement, since {why}",
        )


Assessment: TypeAlias = Decision | Undecided
"""The judge's result after the pairs so far."""


def assess(
    candidate: Mapping[int, float],
    reference: Mapping[int, float],
    noise: Noise,
    rules: Rules,
    *,
    reference_hash: str,
    measure: Measure = BPB,
    certain: bool = False,
) -> Assessment:
    """Compare a candidate's objectives by seed with its reference's.

    There must be at least one common seed. The reference's other runs count towards its mean.

    :param measure: unit and direction of the scores in the explanation.
    :param certain: whether every run of a config is the same, so that one pair decides.
    """
    seen = Comparison.of(candidate, reference, noise, reference_hash, measure)
    if certain:
        better = seen.delta < 0
        why = "better" if better else "not better"
        why += ", and every run of a config is the same"
        return seen.decision("keep" if better else "discard", rules, why)
    last = seen.pairs >= rules.max_runs
    proven = seen.z >= rules.z_keep if last else rules.keeps_early(seen.z, seen.pairs)
    if proven and seen.delta < 0:
        why = f"better by {seen.z:.1f} standard errors (the bar is {rules.z_keep:g})"
        return seen.decision("keep", rules, why)
    if last or _is_futile(seen, rules):
        why = "too small a gain for the rest of the race to prove"
        if seen.delta >= 0:
            why = "not better"
        elif last:
            why = f"better by {seen.z:.1f} standard errors, short of the bar of {rules.z_keep:g}"
        return seen.decision("discard", rules, why)
    return Undecided(reference_hash, rules, seen)


def _is_futile(seen: Comparison, rules: Rules) -> bool:
    """Return whether more common seeds could hardly bring the candidate over the bar."""
    if seen.pairs == 1:
        return seen.delta > rules.early_stopping_threshold * seen.noise.sigma_d
    hoped = -seen.delta + rules.z_drop * seen.stderr
    return hoped < rules.z_keep * seen.noise.stderr(rules.max_runs, seen.reference_runs)


def no_effect(
    score: float,
    seed: int,
    rules: Rules,
    *,
    reference_hash: str,
    printed: bool = False,
    pairs: int = 1,
) -> Decision:
    """Return the decision on a candidate whose training is identical to its reference's to the last
    bit. Its changes do nothing under this config, and more runs would only repeat that.

    :param printed: whether the curves are compared as a command prints them, to the last digit.
    :param pairs: seeds with equal scores; from the second on, curves are not compared.
    """
    same = f"the same curve as the reference's on seed {seed}, to the last "
    same += "digit printed" if printed else "bit"
    if pairs > 1:
        same = f"the same scores as the reference's on {pairs} seeds"
    return Decision(
        action="discard",
        reference_hash=reference_hash,
        reference_objective=score,
        estimate_objective=score,
        delta=0.0,
        pairs=pairs,
        **rules.model_dump(),
        no_effect=True,
        explanation=f"no effect: {same}",
    )


def kept_when(rules: Rules) -> str:
    """Return a clause that says when a candidate is kept."""
    return (
        f"it is better by at least {rules.z_keep:g} standard errors of the difference, measured on "
        f"up to {rules.max_runs} seeds that it shares with the reference"
    )
