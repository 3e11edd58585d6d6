"""Configs of earlier campaigns as trials of this one's study: on its scale, and for less.

A prior's config is worth the baseline's mean plus its gain in standard deviations of one run here.

How many are told shrinks as this campaign measures configs of its own: each is told with the
probability ``PRIOR_WORTH / (PRIOR_WORTH + measured)``, drawn afresh for each iteration, so that a
prior that misleads is soon outvoted. That a prior should fade with the number of trials is the idea
of πBO (Hvarfner et al. 2022); it is done by drawing because Optuna's TPE takes no weight per trial.
Beyond that, TPE counts older trials for less once it has more than 25, and priors are told first.
"""

from __future__ import annotations

import optuna
from optuna.trial import FrozenTrial, TrialState

from agent.proposers.base import Memory
from agent.proposers.draws import rng_for

PRIOR_WORTH = 5
"""Configs measured here at which half of a prior's are told. On the made-up objective of
tests/support/searches.py, whose baseline is 0.42 bpb above the best, 5 searches gained 0.30 bpb in
ten iterations with a prior of the same objective, 0.23 without one and 0.05 with one of the
opposite; after forty 0.40, 0.37 and 0.36. Twice as much helped as much and misled for longer."""


def prior_trials(memory: Memory, measured: int) -> list[FrozenTrial]:
    """The priors' configs that this iteration's study is told, in the priors' order.

    None while this campaign's own scale is unknown.
    """
    baseline = memory.evidence.configs.get(memory.evidence.baseline_hash or "")
    sigma = memory.evidence.sigma
    if not memory.priors or baseline is None or not baseline.n or sigma is None:
        return []
    rng = rng_for("priors", memory)
    chance = PRIOR_WORTH / (PRIOR_WORTH + measured)
    domains = memory.menu.domains
    trials = []
    for config in (config for prior in memory.priors for config in prior.configs):
        if rng.random() >= chance:
            continue
        parameters = {name: domains[name].parameter(value) for name, value in config.values.items()}
        known = {name: value for name, value in parameters.items() if value is not None}
        trials.append(
            optuna.trial.create_trial(
                state=TrialState.COMPLETE,
                params=known,
                distributions={name: domains[name].search_distribution() for name in known},
                value=baseline.mean + config.gain * sigma,
            )
        )
    return trials
