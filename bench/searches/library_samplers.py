"""Further samplers of well-kept libraries: Optuna's, and SciPy's low-discrepancy points.

Of Optuna's those are not here whose state lives in the trials of a study that goes on all night
(CMA-ES, NSGA-II): a study is built anew for each iteration, so that a resumed campaign goes on as
if it had never stopped. ``cmaes``, which Optuna's CMA-ES is, is used itself
(:mod:`bench.searches.evolution`). Brute force refuses real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import optuna
from optuna.samplers import BaseSampler
from scipy.stats.qmc import Sobol

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, against_reference, offered
from bench.searches.tpe import STARTUP, told_study, whom_to_tell

MakeSampler: TypeAlias = Callable[[int], BaseSampler]
"""Of a seed."""
DRAWS = 20
POINTS = 64


def univariate_tpe(seed: int) -> BaseSampler:
    """TPE, each knob by itself."""
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=0)


def gaussian_process(seed: int) -> BaseSampler:
    """Optuna's own, on torch: seconds an ask."""
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=False)


@dataclass(frozen=True, slots=True)
class OptunaProposer:
    """A sampler of Optuna's asked for every knob of the menu."""

    rails: Rails
    make: MakeSampler

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("optuna", self.rails, memory, lambda rng: self._draws(rng, memory), DRAWS)

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        told = whom_to_tell(memory)
        if len(told.measured) < STARTUP:
            return
        study, domains = told_study(memory, told), memory.menu.domains
        distributions = {name: domain.search_distribution() for name, domain in domains.items()}
        while True:
            study.sampler = self.make(rng.getrandbits(31))
            trial = study.ask(distributions)
            values = {name: domain.value(trial.params[name]) for name, domain in domains.items()}
            yield Draw(against_reference(memory, values), "a sampler of Optuna's")


@dataclass(frozen=True, slots=True)
class SobolProposer:
    """Uniform edits whose values are the points of a scrambled Sobol sequence, one an iteration."""

    rails: Rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("sobol", self.rails, memory, lambda rng: self._draws(rng, memory), POINTS)

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        domains = memory.menu.domains
        sequence = Sobol(len(domains), seed=memory.seed)
        if memory.iter > 1:
            sequence.fast_forward(memory.iter - 1)
        for point in sequence.random(POINTS):
            at = dict(zip(domains, point.tolist(), strict=True))
            names = rng.sample(list(domains), rng.randint(1, memory.few_changes))
            values = {name: domains[name].rounded(domains[name].at(at[name])) for name in names}
            yield Draw(against_reference(memory, values), "a point of a Sobol sequence")
