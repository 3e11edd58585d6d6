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

Were sigma_d known, a candidate worth nothing would be kept with less than z_keep's probability. It
is estimated, at first from a few runs, so that is no promise for a campaign's first races, and none
at all for a campaign as a whole: of a hundred ideas worth nothing some get through.
docs/decisions.md has the rates that were simulated.
- **race** on, with one more common seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from trajectory.ranking import Noise
from trajectory.rows import Decision
from trajectory.rules import Rules

__all__ = ["Assessment", "Rules", "assess", "kept_when", "no_effect"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the pairs so far say."""

    action: Literal["keep", "discard", "race"]
    decision: Decision


def assess(
    candidate: Mapping[int, float],
    reference: Mapping[int, float],
    noise: Noise,
    rules: Rules,
    *,
    reference_hash: str,
) -> Assessment:
    """Weigh a candidate's val_bpb by seed against its reference's.

    Only common seeds count, and there must be at least one.
    """
    seeds = sorted(candidate.keys() & reference.keys())
    differences = [candidate[seed] - reference[seed] for seed in seeds]
    pairs = len(differences)
    delta = fmean(differences)
    stderr = noise.sigma_d / math.sqrt(pairs)
    z = -delta / stderr if stderr > 0 else math.copysign(math.inf, -delta) if delta else 0.0
    hoped = -delta + rules.z_drop * stderr
    bar = rules.z_keep * noise.sigma_d / math.sqrt(max(rules.max_runs, pairs))

    action: Literal["keep", "discard", "race"]
    if pairs >= rules.max_runs:
        action = "keep" if z >= rules.z_keep and delta < 0 else "discard"
    elif rules.keeps_early(z, pairs):
        action = "keep"
    elif pairs == 1:
        action = "discard" if delta > rules.first_drop * noise.sigma_d else "race"
    else:
        action = "discard" if hoped < bar else "race"

    reference_bpb = fmean(reference[seed] for seed in seeds)
    return Assessment(
        action,
        Decision(
            action="discard" if action == "race" else action,
            reference_hash=reference_hash,
            reference_bpb=reference_bpb,
            estimate_bpb=fmean(candidate[seed] for seed in seeds),
            delta=delta,
            stderr=stderr,
            sigma=noise.sigma_d,
            pairs=pairs,
            pairs_ss=math.fsum((d - delta) ** 2 for d in differences) if pairs > 1 else 0.0,
            z=max(-1e6, min(1e6, z)),
            rules=rules,
            explanation=_explain(action, delta, stderr, pairs, z, rules),
        ),
    )


def no_effect(score: float, seed: int, rules: Rules, *, reference_hash: str) -> Decision:
    """Of a candidate that trained like its reference to the last bit: what it changes does nothing
    under this config, and more runs would only say so again."""
    return Decision(
        action="discard",
        reference_hash=reference_hash,
        reference_bpb=score,
        estimate_bpb=score,
        delta=0.0,
        pairs=1,
        rules=rules,
        no_effect=True,
        explanation=f"no effect: the same curve as the reference's on seed {seed}, to the last bit",
    )


def _explain(action: str, delta: float, stderr: float, pairs: int, z: float, rules: Rules) -> str:
    runs = "1 common seed" if pairs == 1 else f"{pairs} common seeds"
    seen = f"{delta:+.4f} ± {stderr:.4f} bpb on {runs}"
    if action == "keep":
        return f"{seen}: better by {z:.1f} standard errors (the bar is {rules.z_keep:g})"
    if delta >= 0:
        return f"{seen}: not better"
    if pairs >= rules.max_runs:
        return f"{seen}: better by {z:.1f} standard errors, short of the bar of {rules.z_keep:g}"
    return f"{seen}: too small a gain for the rest of the race to prove"


def kept_when(rules: Rules) -> str:
    """What counts as kept, in a clause."""
    return (
        f"it is better by at least {rules.z_keep:g} standard errors of the difference, measured on "
        f"up to {rules.max_runs} seeds that it shares with the reference"
    )
