"""Optuna's TPE over the menu, told what was measured and nothing else.

What it is told, and why:

- One number per config, the mean of its runs. Per run, a config that raced over four seeds would
  weigh four times as much as its neighbour, and the baseline most of all.
- A config that failed is told as pruned, without any number: Optuna ranks it behind whatever was
  measured, so that it counts among the bad. A penalty score would need an invented size, and
  poisons the search (arXiv 2603.24647).
- The :data:`BEST` best configs and the :data:`LATEST` latest: enough for TPE, whose good group
  never exceeds 25.
- What is being raced meanwhile, where several are at once, as running: Optuna counts it as bad, so
  that the next candidate is looked for elsewhere (the constant liar).

A proposal may turn ``max_changes`` knobs, so each draw picks that many at most and lets TPE choose
their values jointly (multivariate: knobs such as width and learning rate interact), the others
staying at the reference. Where ``max_changes`` covers the menu this is plain TPE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Self

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, against_reference, offered
from agent.proposers.surrogate.observed import Observed
from autoresearch.values import Scalar
from trainer.spec import AnyConfig

STARTUP = 10
"""Measured configs before TPE is asked; until then the draws are uniform."""
BEST = 200
LATEST = 200
TPE_DRAWS = 40
EI_CANDIDATES = 64
"""Points TPE picks its best from. On the made-up objective of the simulator, on two sets
of tuning nights, 64 gained 0.293 and 0.286 bpb, Optuna's 24 gained 0.277 and 0.256, and chance
0.257 and 0.273, each ± 0.01: the best of about a dozen variants tried, so take it for a hint."""


@dataclass(frozen=True, slots=True)
class TpeProposer:
    """TPE's pick of the values of a few knobs of the reference."""

    rails: Rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("tpe", self.rails, memory, lambda rng: _draws(rng, memory), TPE_DRAWS)


def whom_to_tell(memory: Memory) -> Observed:
    """The configs that a sampler of a library's learns from."""
    return Observed.of(memory.evidence, best=BEST, latest=LATEST)


class _SomeKnobs(optuna.samplers.TPESampler):
    """TPE over some of the study's parameters, whatever values the others had."""

    def __init__(self, space: Mapping[str, BaseDistribution], seed: int) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=0,
            n_ei_candidates=EI_CANDIDATES,
            multivariate=True,
            constant_liar=True,  # what is being raced counts as bad: others look elsewhere
        )
        self._space = dict(space)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._space


def _draws(rng: Random, memory: Memory) -> Iterator[Draw]:
    observed = whom_to_tell(memory)
    if len(observed.measured) < STARTUP:
        return
    study, domains = study_of(memory, observed), memory.menu.domains
    distributions = {name: domain.search_distribution() for name, domain in domains.items()}
    while True:
        names = _knobs_to_turn(rng, memory)
        study.sampler = _SomeKnobs(
            {name: distributions[name] for name in sorted(names)}, rng.getrandbits(32)
        )
        trial = study.ask({name: distributions[name] for name in names})
        values = {name: domains[name].value(trial.params[name]) for name in names}
        yield Draw(against_reference(memory, values), "TPE's")


def _knobs_to_turn(rng: Random, memory: Memory) -> list[str]:
    """More of them are likelier: TPE keeps the reference's value of many that it is given."""
    names = list(memory.menu.knobs)
    sizes = range(1, min(memory.max_changes, len(names)) + 1)
    if len(sizes) == len(names):
        return names
    return rng.sample(names, rng.choices(sizes, weights=sizes)[0])


def study_of(memory: Memory, observed: Observed) -> optuna.Study:
    """A study in memory with a finished trial for every config told."""
    distributions = {name: d.search_distribution() for name, d in memory.menu.domains.items()}
    with _quiet():
        study = optuna.create_study(direction="minimize")
    scored = [(entry.config, TrialState.COMPLETE, entry.mean) for entry in observed.measured]
    scoreless = [(entry.config, TrialState.PRUNED, None) for entry in observed.failed]
    underway = [(config, TrialState.RUNNING, None) for config in memory.pending]
    for config, state, value in (*scored, *scoreless, *underway):
        parameters = _parameters(memory, config)
        if parameters is not None:
            study.add_trial(_KnownTrial.of(state, value, parameters, distributions))
    return study


class _KnownTrial(FrozenTrial):
    """A trial that nobody changes once it is told.

    A study in memory copies each trial it is given, to the last choice of the last knob's
    distribution, which took half of an ask. Only its number is the study's own.
    """

    @classmethod
    def of(
        cls,
        state: TrialState,
        value: float | None,
        parameters: dict[str, Scalar],
        distributions: dict[str, BaseDistribution],
    ) -> Self:
        """As :func:`optuna.trial.create_trial`, which looks for old versions of distributions."""
        now = datetime.now()
        return cls(
            number=-1,
            trial_id=-1,
            state=state,
            value=value,
            datetime_start=now,
            datetime_complete=now if state.is_finished() else None,
            params=parameters,
            distributions=distributions,
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return copy(self)


def _parameters(memory: Memory, config: AnyConfig) -> dict[str, Scalar] | None:
    """The config as Optuna's parameters; None where a knob is outside this menu's domain."""
    parameters: dict[str, Scalar] = {}
    for name, value in memory.menu.knob_values(config).items():
        parameter = memory.menu.domains[name].parameter(value)
        if parameter is None:
            return None
        parameters[name] = parameter
    return parameters


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna announces each study; its verbosity is global, so it is put back."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
