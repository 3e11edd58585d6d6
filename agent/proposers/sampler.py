"""Optuna's TPE over the menu, told what was measured and nothing else.

What it is told, and why:

- One number per config, the mean of its runs. Per run, a config that raced over four seeds would
  weigh four times as much as its neighbour, and the baseline most of all.
- A config that failed is told as pruned, without any number: Optuna ranks it behind whatever was
  measured, so that it counts among the bad. A penalty score would need an invented size, and
  poisons the search (arXiv 2603.24647).
- The :data:`BEST` best configs and the :data:`LATEST` latest: enough for TPE, whose good group
  never exceeds 25, and as quick after a hundred thousand rows as after a thousand.
- What is being raced meanwhile, where several are at once, as running: Optuna counts it as bad, so
  that the next candidate is looked for elsewhere (the constant liar).
- Some configs of earlier campaigns, where there are any (:mod:`agent.proposers.prior_trials`).
  With them TPE need not wait for configs of its own.

A proposal may turn ``max_changes`` knobs, so each draw picks that many at most and lets TPE choose
their values jointly (multivariate: knobs such as width and learning rate interact), the others
staying at the reference. Where ``max_changes`` covers the menu this is plain TPE.

The study is built anew for each iteration and seeded from (seed, iter), so that a proposer that
was born this minute offers what one that ran all night would.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from random import Random
from typing import Any, Self

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import (
    Draw,
    against_reference,
    exhausted,
    first_allowed,
    rng_for,
    uniform_draws,
)
from agent.proposers.prior_trials import prior_trials
from autoresearch.values import Scalar
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.proposals import ProposerRecord

STARTUP = 10
"""Measured configs before TPE is asked; until then the draws are uniform."""
BEST = 200
LATEST = 200
TPE_DRAWS = 40
EI_CANDIDATES = 64
"""Points TPE picks its best from. On the made-up objective of the simulator, on two sets
of tuning nights, 64 gained 0.293 and 0.286 bpb, Optuna's 24 gained 0.277 and 0.256, and chance
0.257 and 0.273, each ± 0.01: the best of about a dozen variants tried, so take it for a hint."""
UNIFORM_DRAWS = 400
"""After TPE's own, which crowd together, were all refused."""


class SamplerProposer:
    """TPE's pick of the values of a few knobs of the reference.

    Draws that the rails refuse or that were tried before are drawn again.
    """

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the menu seems exhausted.
        """
        began = time.monotonic()
        rng = rng_for("sampler", memory)
        draw = None
        told = Told.of(memory.evidence)
        measured = len(told.measured)
        priors = prior_trials(memory, measured)
        if measured + len(priors) >= STARTUP:
            reason = f"TPE over {measured} measured configs"
            if priors:
                reason += f" and {len(priors)} of earlier campaigns"
            draws = _tpe_draws(rng, memory, told_study(memory, told, priors), reason)
            draw = first_allowed(self._rails, memory, draws, TPE_DRAWS)
            reason = f"drawn uniformly: {TPE_DRAWS} draws of TPE were tried before or refused"
        else:
            reason = f"drawn uniformly: {measured} of {STARTUP} configs to start TPE are measured"
        if draw is None:
            uniform = uniform_draws(rng, memory, reason)
            draw = first_allowed(self._rails, memory, uniform, UNIFORM_DRAWS)
        if draw is None:
            raise exhausted(memory, TPE_DRAWS + UNIFORM_DRAWS)
        return Offer(draw.raw, ProposerRecord(kind="sampler", latency_s=time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class Told:
    """What the sampler learns from, each in the order first seen."""

    measured: tuple[ConfigEvidence, ...]
    """The best and the latest configs with scores and without failures."""
    failed: tuple[ConfigEvidence, ...]
    """The latest that failed on any seed; never more than were measured, lest Optuna, whose good
    group is a tenth of all trials, run out of measured ones to fill it with."""

    @classmethod
    def of(cls, evidence: Evidence, *, best: int = BEST, latest: int = LATEST) -> Told:
        """
        :param best: how many of the best, and ``latest`` of the latest.
        """
        configs = evidence.configs.values()
        newest = list(islice(reversed(configs), latest))
        sound = (entry for entry in configs if entry.scores and not entry.failures)
        leading = heapq.nsmallest(best, sound, key=_mean)
        recent = [entry for entry in newest if entry.scores and not entry.failures]
        measured = {entry.config_hash: entry for entry in (*leading, *recent)}
        failed = [entry for entry in newest if entry.failures][: len(measured)]
        return cls(_in_order(measured.values()), _in_order(failed))


def _mean(entry: ConfigEvidence) -> float:
    return entry.mean


def _in_order(entries: Iterable[ConfigEvidence]) -> tuple[ConfigEvidence, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.iter, entry.config_hash)))


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


def _tpe_draws(rng: Random, memory: Memory, study: optuna.Study, reason: str) -> Iterator[Draw]:
    domains = memory.menu.domains
    distributions = {name: domain.search_distribution() for name, domain in domains.items()}
    known = _known_to_all(study)
    while True:
        names = _knobs_to_turn(rng, memory)
        space = {name: distributions[name] for name in sorted(names) if name in known}
        study.sampler = _SomeKnobs(space, rng.getrandbits(32))
        trial = study.ask({name: distributions[name] for name in names})
        values = {name: domains[name].value(trial.params[name]) for name in names}
        yield Draw(against_reference(memory, values), reason)


def _known_to_all(study: optuna.Study) -> frozenset[str]:
    """The parameters that TPE can choose jointly: those that every finished trial has, as all have
    but some of another menu's. Optuna would find them anew for each draw, trial by trial."""
    finished = (TrialState.COMPLETE, TrialState.PRUNED)
    told = study.get_trials(deepcopy=False, states=finished)
    first, *others = (trial.params.keys() for trial in told) if told else (frozenset[str](),)
    return frozenset(first).intersection(*others)


def _knobs_to_turn(rng: Random, memory: Memory) -> list[str]:
    """More of them are likelier: TPE keeps the reference's value of many that it is given."""
    names = list(memory.menu.knobs)
    sizes = range(1, min(memory.max_changes, len(names)) + 1)
    if len(sizes) == len(names):
        return names
    return rng.sample(names, rng.choices(sizes, weights=sizes)[0])


def told_study(memory: Memory, told: Told, priors: Sequence[FrozenTrial] = ()) -> optuna.Study:
    """A study in memory with a finished trial for every config told, those of priors first."""
    distributions = {name: d.search_distribution() for name, d in memory.menu.domains.items()}
    with _quiet():
        study = optuna.create_study(direction="minimize")
    study.add_trials(priors)
    scored = [(entry.config, TrialState.COMPLETE, entry.mean) for entry in told.measured]
    scoreless = [(entry.config, TrialState.PRUNED, None) for entry in told.failed]
    underway = [(config, TrialState.RUNNING, None) for config in memory.pending]
    for config, state, value in (*scored, *scoreless, *underway):
        parameters = _parameters(memory, config)
        if parameters is not None:
            study.add_trial(_ToldTrial.of(state, value, parameters, distributions))
    return study


class _ToldTrial(FrozenTrial):
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
