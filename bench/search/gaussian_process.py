"""Optuna's Gaussian process over the whole menu, for comparison with the sampler."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import optuna

from agent.menu.rails import Rails
from agent.proposers.base import Offer, SearchView
from agent.proposers.draws import Draw, Edits, offered
from bench.search.parameters import distribution_of, value_of
from bench.search.tpe import STARTUP, study_of, whom_to_tell

DRAWS = 20


@dataclass(frozen=True, slots=True)
class GaussianProcessProposer:
    """Optuna's ``GPSampler`` over every knob of the menu; a proposal takes seconds."""

    rails: Rails

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("optuna", self.rails, view, lambda rng: _draws(rng, view), DRAWS)


def _draws(rng: Random, view: SearchView) -> Iterator[Draw]:
    observed = whom_to_tell(view)
    if len(observed.measured) < STARTUP:
        return
    study, domains = study_of(view, observed), view.menu.domains
    distributions = {name: distribution_of(domain) for name, domain in domains.items()}
    while True:
        study.sampler = optuna.samplers.GPSampler(
            seed=rng.getrandbits(31), n_startup_trials=0, deterministic_objective=False
        )
        trial = study.ask(distributions)
        values = {name: value_of(domain, trial.params[name]) for name, domain in domains.items()}
        yield Draw(Edits.of(view).against(values), "Optuna's Gaussian process")
