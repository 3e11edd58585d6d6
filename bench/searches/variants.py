"""The product's sampler with one thing done otherwise at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, exhausted, first_allowed, rng_for, uniform_draws
from agent.proposers.sampler import SamplerProposer
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.neighbours import Edit, Neighbourhood
from agent.proposers.surrogate.promise import EDITS, Fit, Promise, expected_improvement
from agent.proposers.surrogate.space import Floats
from agent.proposers.surrogate.told import Told
from agent.proposers.uniform import RandomProposer
from trajectory.proposals import ProposerRecord

Way: TypeAlias = Callable[[Neighbourhood, Random], Edit]
Acquisition: TypeAlias = Callable[[Random, Floats, Floats, float], Floats]
"""Of means, standard deviations and the bar: what each is worth."""
STARTUP = 8


@dataclass(frozen=True, slots=True)
class Variant:
    """A search of the same form as the product's sampler."""

    rails: Rails
    fit: Fit = GaussianProcess.fit
    ways: tuple[Way, ...] = (Neighbourhood.by_chance, Neighbourhood.by_steps)
    towards_elites: bool = True
    varied: bool = True
    worth: Acquisition = lambda _, mean_M, sd_M, bar: expected_improvement(mean_M, sd_M, bar)
    startup: int = STARTUP

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        rng = rng_for("variant", memory)
        told = Told.of(memory.evidence)
        draw = None
        if len(told.measured) >= self.startup:
            draws = (Draw(edit, "a variant") for edit in self._edits(rng, memory, told))
            draw = first_allowed(self.rails, memory, draws, 200)
        if draw is None:
            draw = first_allowed(self.rails, memory, uniform_draws(rng, memory, "chance"), 400)
        if draw is None:
            raise exhausted(memory, 600)
        return Offer(draw.raw, ProposerRecord(kind="sampler"))

    def _edits(self, rng: Random, memory: Memory, told: Told) -> list[Edit]:
        promise = Promise.of(memory, told, (), self.fit)
        around, turns = promise.neighbourhood, list(self.ways)
        if self.towards_elites and promise.elites:
            turns.append(lambda around, rng: around.towards(rng, rng.choice(promise.elites)))
        drawn = [turns[number % len(turns)](around, rng) for number in range(EDITS)]
        best = self._ranked(rng, promise, drawn)
        if not self.varied:
            return best
        more = [around.varied(rng, edit) for edit in best[:10] for _ in range(12)]
        return self._ranked(rng, promise, [*best, *more])

    def _ranked(self, rng: Random, promise: Promise, edits: Sequence[Edit]) -> list[Edit]:
        some = [edit for edit in edits if edit]
        points_MP = promise.space.edited(promise.neighbourhood.now, some)
        worth_M = self.worth(rng, *promise.scores.predict(points_MP), promise.bar)
        if promise.failing is not None:
            worth_M = worth_M * (1 - np.clip(promise.failing.predict(points_MP)[0], 0, 1))
        return [some[place] for place in np.argsort(-worth_M, kind="stable")]


@dataclass(frozen=True, slots=True)
class Interleaved:
    """The product's sampler, and chance on every ``every``-th iteration, as SMAC has it on every
    second (Hutter, Hoos and Leyton-Brown 2011)."""

    rails: Rails
    every: int

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        kind = SamplerProposer if memory.iter % self.every else RandomProposer
        return kind(self.rails).propose(memory)


def thompson(rng: Random, mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
    """One draw for each edit, as if they had nothing in common."""
    drawn_M = np.array([rng.gauss(0, 1) for _ in mean_M])
    worth_M: Floats = np.maximum(bar - mean_M - sd_M * drawn_M, 0)
    return worth_M


def chance_to_improve(_rng: Random, mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
    """The probability to be better at all (Kushner 1964)."""
    z_M = (bar - mean_M) / sd_M
    return np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in z_M.tolist()])


def mean_alone(_rng: Random, mean_M: Floats, _sd_M: Floats, bar: float) -> Floats:
    """What is believed, however uncertain: no exploration."""
    worth_M: Floats = np.exp(bar - mean_M)
    return worth_M


def fixed_noise(
    points_NP: Floats, target_N: Floats, variance_N: Floats, knobs: NDArray[np.intp]
) -> GaussianProcess:
    """A process that takes every run to be as noisy as the campaign's pooled sigma says."""
    fitted = GaussianProcess.fit(points_NP, target_N, variance_N, knobs)
    known = fitted.parameters.copy()
    known[-1] = 0.0
    return replace(fitted, parameters=known).about(points_NP, target_N, variance_N)


def one_length(
    points_NP: Floats, target_N: Floats, variance_N: Floats, knobs: NDArray[np.intp]
) -> GaussianProcess:
    """A process to which all knobs matter alike."""
    return GaussianProcess.fit(points_NP, target_N, variance_N, np.zeros_like(knobs))
