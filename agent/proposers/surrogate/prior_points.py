"""Configs of earlier campaigns as points to learn from: on this campaign's scale, and for less.

A prior's config is worth the baseline's mean plus its gain in standard deviations of one run here.
Of knobs that it does not have it is taken to have the baseline's values.

How many are told shrinks as this campaign measures configs of its own: each is told with the
probability ``PRIOR_WORTH / (PRIOR_WORTH + measured)``, drawn afresh for each iteration, so that a
prior that misleads is soon outvoted. That a prior should fade with the number of trials is the idea
of πBO (Hvarfner et al. 2022).
"""

from __future__ import annotations

from agent.proposers.base import Memory
from agent.proposers.draws import rng_for
from agent.proposers.surrogate.space import Values

PRIOR_WORTH = 5
"""Configs measured here at which half of a prior's are told."""
MOST = 100
"""Points of all priors together: as quick with ten of them as with one."""


def prior_points(memory: Memory, measured: int) -> list[tuple[Values, float]]:
    """The knobs and scores of the priors' configs that this iteration is told, in their order.

    None while this campaign's own scale is unknown, or where its runs do not differ at all.
    """
    baseline = memory.evidence.configs.get(memory.evidence.baseline_hash or "")
    sigma = memory.evidence.sigma
    if not memory.priors or baseline is None or not baseline.n or not sigma:
        return []
    rng = rng_for("priors", memory)
    chance = PRIOR_WORTH / (PRIOR_WORTH + measured)
    every = [config for prior in memory.priors for config in prior.configs]
    chosen = [config for config in every if rng.random() < chance]
    if len(chosen) > MOST:
        chosen = [chosen[place] for place in sorted(rng.sample(range(len(chosen)), MOST))]
    domains, defaults = memory.menu.domains, memory.menu.defaults
    return [
        (
            defaults | {name: domains[name].normal(value) for name, value in config.values.items()},
            baseline.mean + config.gain * sigma,
        )
        for config in chosen
    ]
