"""Configs of earlier campaigns as scores of this one: on its scale, and for less.

A prior's config is worth the baseline's mean plus its gain in standard deviations of one run here.
Knobs that it does not name are the menu's defaults.

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
"""Of all priors together, evenly spread over them."""


def prior_scores(memory: Memory, measured: int) -> list[tuple[Values, float]]:
    """The priors' configs that this iteration is told and what they would score here, in the
    priors' order.

    None while this campaign's own scale is unknown.
    """
    baseline = memory.evidence.configs.get(memory.evidence.baseline_hash or "")
    sigma = memory.evidence.sigma
    if not memory.priors or baseline is None or not baseline.n or sigma is None:
        return []
    rng = rng_for("priors", memory)
    chance = PRIOR_WORTH / (PRIOR_WORTH + measured)
    configs = [config for prior in memory.priors for config in prior.configs]
    told = [config for config in configs if rng.random() < chance]
    spread = told[:: max(1, -(-len(told) // MOST))]
    defaults = memory.menu.defaults
    return [(defaults | dict(one.values), baseline.mean + one.gain * sigma) for one in spread]
