"""Keep or discard: evidence against luck.

A candidate and its reference are measured on common seeds, so what the seeds share cancels. With
``d_i = candidate - reference`` on seed i, k pairs give ``delta = mean(d)`` with standard error
``sigma_d / sqrt(k)``. ``sigma_d``, the sd of one such difference, is pooled over the campaign's
races; until there are races it is ``sqrt(2) sigma`` from the replicated baseline, as if seeds
shared nothing (the cautious side), and that prior goes on weighing as much as four degrees of
freedom (:class:`trajectory.ranking.Noise`).

After each pair, one of three things:

- **discard**: after the first pair, it is worse by more than ``first_drop`` ``sigma_d``; after a
  later one, even if the truth lay ``z_drop`` standard errors better than what was measured, the
  race's last pair would leave it short of the bar. Most bad ideas cost one run.
- **keep**: the race is at its last pair and ``-delta / stderr >= z_keep``; or at an earlier one,
  the second at least, with ``z >= Z_OBVIOUS``. Looking after every pair and keeping at the first
  lucky look would keep more of what is worth nothing (Armitage, McPherson and Rowe 1969).
- :class:`Undecided`: the race goes on, with one more common seed.

Were sigma_d known, a candidate worth nothing would be kept with less than z_keep's probability. It
is estimated, at first from a few runs, so that is no promise for a campaign's first races, and none
at all for a campaign as a whole: of a hundred ideas worth nothing some get through.
docs/decisions.md has the rates that were simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from autoresearch.words import counted
from trainer.spec import BPB, Measure
from trajectory.ranking import Noise
from trajectory.rows import Decision
from trajectory.rules import Rules


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate beside its reference on their common seeds, in objectives."""

    reference_hash: str
    reference_bpb: float
    """Mean over the common seeds, as is ``estimate_bpb``, the candidate's."""
    estimate_bpb: float
    delta: float
    """Estimate minus reference: negative is better."""
    pairs: int
    pairs_ss: float
    """Sum of squares of the paired differences about ``delta``."""
    sigma_d: float
    measure: Measure = BPB

    @property
    def stderr(self) -> float:
        """Standard error of ``delta``."""
        return self.sigma_d / math.sqrt(self.pairs)

    @property
    def z(self) -> float:
        """Standard errors by which the candidate is better."""
        if self.stderr > 0:
            return -self.delta / self.stderr
        return math.copysign(math.inf, -self.delta) if self.delta else 0.0

    def decision(self, action: Literal["keep", "discard"], rules: Rules, why: str) -> Decision:
        """With every number that it was made from."""
        return Decision(
            action=action,
            reference_hash=self.reference_hash,
            reference_bpb=self.reference_bpb,
            estimate_bpb=self.estimate_bpb,
            delta=self.delta,
            stderr=self.stderr,
            sigma=self.sigma_d,
            pairs=self.pairs,
            pairs_ss=self.pairs_ss,
            z=max(-1e6, min(1e6, self.z)),
            rules=rules,
            explanation=f"{self}: {why}",
        )

    def __str__(self) -> str:
        seeds = counted(self.pairs, "common seed")
        measure = self.measure
        delta, stderr = measure.signed(self.delta), measure.size(self.stderr)
        return f"{delta} ± {stderr} {measure.short} on {seeds}"


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither kept nor discarded yet: the race goes on, with one more common seed."""

    reference_hash: str
    rules: Rules
    seen: Comparison | None = None
    """None where the race begins, before its first pair."""

    @property
    def explanation(self) -> str:
        """What the pairs so far say."""
        return f"{self.seen or 'no common seed'}: undecided so far"

    def left_open(self, why: str) -> Decision:
        """What is written down where no seed is left to race on.

        Rows have no word for it. The reference stands, which is all that ``discard``
        means to what follows; that nothing was proven is in the explanation.
        """
        if self.seen is not None:
            return self.seen.decision("discard", self.rules, f"undecided, since {why}")
        return Decision(
            action="discard",
            reference_hash=self.reference_hash,
            rules=self.rules,
            explanation=f"undecided, with nothing to judge by, since {why}",
        )


Assessment: TypeAlias = Decision | Undecided
"""What the pairs so far say."""


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
    """Weigh a candidate's objectives by seed against its reference's.

    Only common seeds count, and there must be at least one.

    :param measure: what words about them are said in.
    :param certain: that every run of a config is the same, so that one pair says all.
    """
    seen = _compared(candidate, reference, noise, reference_hash, measure)
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
    if last or _hopeless(seen, rules):
        return seen.decision("discard", rules, _why_discarded(seen, rules))
    return Undecided(reference_hash, rules, seen)


def _compared(
    candidate: Mapping[int, float],
    reference: Mapping[int, float],
    noise: Noise,
    reference_hash: str,
    measure: Measure,
) -> Comparison:
    seeds = sorted(candidate.keys() & reference.keys())
    differences = [candidate[seed] - reference[seed] for seed in seeds]
    delta = fmean(differences)
    return Comparison(
        reference_hash=reference_hash,
        reference_bpb=fmean(reference[seed] for seed in seeds),
        estimate_bpb=fmean(candidate[seed] for seed in seeds),
        delta=delta,
        pairs=len(seeds),
        pairs_ss=math.fsum((d - delta) ** 2 for d in differences) if len(seeds) > 1 else 0.0,
        sigma_d=noise.sigma_d,
        measure=measure,
    )


def _hopeless(seen: Comparison, rules: Rules) -> bool:
    """Whether more common seeds would hardly get it over the bar."""
    if seen.pairs == 1:
        return seen.delta > rules.first_drop * seen.sigma_d
    hoped = -seen.delta + rules.z_drop * seen.stderr
    return hoped < rules.z_keep * seen.sigma_d / math.sqrt(rules.max_runs)


def _why_discarded(seen: Comparison, rules: Rules) -> str:
    if seen.delta >= 0:
        return "not better"
    if seen.pairs >= rules.max_runs:
        return f"better by {seen.z:.1f} standard errors, short of the bar of {rules.z_keep:g}"
    return "too small a gain for the rest of the race to prove"


def no_effect(
    score: float, seed: int, rules: Rules, *, reference_hash: str, printed: bool = False
) -> Decision:
    """The decision on a candidate that trained like its reference to the last bit: what it changes
    does nothing under this config, and more runs would only say so again.

    :param printed: as far as a command prints it, to the last digit.
    """
    return Decision(
        action="discard",
        reference_hash=reference_hash,
        reference_bpb=score,
        estimate_bpb=score,
        delta=0.0,
        pairs=1,
        rules=rules,
        no_effect=True,
        explanation=f"no effect: the same curve as the reference's on seed {seed}, to the last "
        f"{'digit printed' if printed else 'bit'}",
    )


def kept_when(rules: Rules) -> str:
    """What counts as kept, in a clause."""
    return (
        f"it is better by at least {rules.z_keep:g} standard errors of the difference, measured on "
        f"up to {rules.max_runs} seeds that it shares with the reference"
    )
