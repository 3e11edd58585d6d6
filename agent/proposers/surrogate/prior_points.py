"""Turn configs of earlier campaigns into training points, on this campaign's scale and with less
weight.

A prior's config has the baseline's mean plus its gain in standard deviations of one run here. Knobs
that it does not have get the baseline's values. The number of points used shrinks as this campaign
measures configs of its own. Each is used with probability ``PRIOR_WORTH / (PRIOR_WORTH +
measured)``, drawn afresh for each iteration, so that a misleading prior is soon outvoted. The
fading follows πBO (Hvarfner et al. 2022).
"""

from __future__ import annotations

from agent.proposers.base import Memory
from agent.proposers.draws import rng_for
from agent.proposers.surrogate.space import Values

PRIOR_WORTH = 5
"""Configs measured here at which half of a prior's configs are used."""
MOST = 100
"""Most points of all priors together, which bounds the time."""


def prior_points(memory: Memory, measured: int) -> list[tuple[Values, float]]:
    """Return the knobs and scores of the priors' configs used in this iteration, in their order.

    None while this campaign's own scale is unknown, or if its runs do not differ at all.
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
