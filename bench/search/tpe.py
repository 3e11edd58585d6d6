"""Optuna's TPE over the menu, which uses only the measured results.

It receives:

- One number per config, the mean of its runs. With one number per run, a config that raced over
  four seeds would weigh four times as much as others, and the baseline most of all.
- A config that failed as a pruned trial, without a number. Optuna ranks it after all measured ones,
  so it counts as bad. A penalty score would need an arbitrary size, and harms the search (arXiv
  2603.24647).
- The :data:`BEST` best configs and the :data:`LATEST` latest. These are enough for TPE, whose good
  group never exceeds 25.
- The configs in flight as running trials. Optuna counts them as bad, so that it searches elsewhere
  for the next candidate (the constant liar).

A proposal may change ``max_changes`` knobs. So each draw selects at most that many and lets TPE
choose their values jointly (multivariate: knobs such as width and learning rate interact). The
others stay at the reference. If ``max_changes`` covers the menu, this is plain TPE.
"""

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
from agent.proposers.base import Offer, SearchView
from agent.proposers.draws import Draw, Edits, offered
from agent.proposers.surrogate.observed import Observed
from autoresearch.values import Scalar
from bench.search.parameters import distribution_of, parameter_of, value_of
from trainer.schema import AnyConfig

STARTUP = 10
"""Measured configs before TPE makes proposals; until then the draws are uniform."""
BEST = 200
LATEST = 200
TPE_DRAWS = 40
EI_CANDIDATES = 64
"""Points among which TPE picks the best. On the simulator's made-up objective, on two sets of
tuning campaigns, 64 gained 0.293 and 0.286 bpb, Optuna's 24 gained 0.277 and 0.256, and chance
0.257 and 0.273, each ± 0.01. It is the best of about a dozen variants, so the evidence is weak."""


@dataclass(frozen=True, slots=True)
class TpeProposer:
    """A proposer that lets TPE choose the values of a few knobs of the reference."""

    rails: Rails

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("tpe", self.rails, view, lambda rng: _draws(rng, view), TPE_DRAWS)


def whom_to_tell(view: SearchView) -> Observed:
    """Return the configs from which a library's sampler learns."""
    return Observed.of(view.evidence, best=BEST, latest=LATEST)


class _SomeKnobs(optuna.samplers.TPESampler):
    """TPE over some of the study's parameters, for any values of the others."""

    def __init__(self, space: Mapping[str, BaseDistribution], seed: int) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=0,
            n_ei_candidates=EI_CANDIDATES,
            multivariate=True,
            constant_liar=True,  # configs in flight count as bad, so TPE searches elsewhere
        )
        self._space = dict(space)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._space


def _draws(rng: Random, view: SearchView) -> Iterator[Draw]:
    observed = whom_to_tell(view)
    if len(observed.measured) < STARTUP:
        return
    study, domains = study_of(view, observed), view.menu.domains
    distributions = {name: distribution_of(domain) for name, domain in domains.items()}
    while True:
        names = _knobs_to_change(rng, view)
        study.sampler = _SomeKnobs(
            {name: distributions[name] for name in sorted(names)}, rng.getrandbits(32)
        )
        trial = study.ask({name: distributions[name] for name in names})
        values = {name: value_of(domains[name], trial.params[name]) for name in names}
        yield Draw(Edits.of(view).against(values), "TPE's")


def _knobs_to_change(rng: Random, view: SearchView) -> list[str]:
    """Draw the knobs to change, more of them more often, since TPE keeps many reference values."""
    names = list(view.menu.knobs)
    sizes = range(1, min(view.max_changes, len(names)) + 1)
    if len(sizes) == len(names):
        return names
    return rng.sample(names, rng.choices(sizes, weights=sizes)[0])


def study_of(view: SearchView, observed: Observed) -> optuna.Study:
    """Return an in-memory study with a trial for every observed config and every one in flight."""
    distributions = {name: distribution_of(d) for name, d in view.menu.domains.items()}
    with _quiet():
        study = optuna.create_study(direction="minimize")
    scored = [(entry.config, TrialState.COMPLETE, entry.mean) for entry in observed.measured]
    scoreless = [(entry.config, TrialState.PRUNED, None) for entry in observed.failed]
    underway = [(config, TrialState.RUNNING, None) for config in view.pending]
    for config, state, value in (*scored, *scoreless, *underway):
        parameters = _parameters(view, config)
        if parameters is not None:
            study.add_trial(_KnownTrial.of(state, value, parameters, distributions))
    return study


class _KnownTrial(FrozenTrial):
    """A trial that does not change once the study has it.

    An in-memory study deep-copies each trial that it gets, down to the choices of each knob's
    distribution, which took half the time of a proposal. The study only sets the trial's number.
    """

    @classmethod
    def of(
        cls,
        state: TrialState,
        value: float | None,
        parameters: dict[str, Scalar],
        distributions: dict[str, BaseDistribution],
    ) -> Self:
        """Do :func:`optuna.trial.create_trial` without its search for outdated distributions."""
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


def _parameters(view: SearchView, config: AnyConfig) -> dict[str, Scalar] | None:
    """Return the config as Optuna's parameters; None if a knob is outside this menu's domain."""
    parameters: dict[str, Scalar] = {}
    for name, value in view.menu.knob_values(config).items():
        parameter = parameter_of(view.menu.domains[name], value)
        if parameter is None:
            return None
        parameters[name] = parameter
    return parameters


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's message about each study, then restore its global verbosity."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
