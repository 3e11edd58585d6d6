"""A search by a surrogate among neighbours, and the same with one thing done otherwise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, exhausted, first_allowed, rng_for, uniform_draws
from agent.proposers.sampler import Told
from agent.proposers.uniform import RandomProposer
from bench.searches.surrogate.gaussian_process import GaussianProcess
from bench.searches.surrogate.neighbours import Edit
from bench.searches.surrogate.promise import Fit, Promise
from bench.searches.surrogate.space import Floats
from bench.searches.surrogate.told import BEST, LATEST
from trajectory.proposals import ProposerRecord

Acquisition: TypeAlias = Callable[[Random, Floats, Floats, float], Floats]
"""Of means, standard deviations and the bar: what each is worth."""
STARTUP = 8
"""Measured configs before a surrogate is asked; until then the draws are uniform."""
EDITS = 400


@dataclass(frozen=True, slots=True)
class SurrogateProposer:
    """The most promising of several hundred edits of the reference: by expected improvement on it,
    times the chance that the edit trains at all."""

    rails: Rails
    fit: Fit = GaussianProcess.fit
    by_steps: bool = True
    """Whether some edits are small steps; else all are drawn by chance."""
    towards_elites: bool = True
    varied: bool = True
    """Whether the best of the edits are varied further."""
    worth: Acquisition = lambda _, mean_M, sd_M, bar: expected_improvement(mean_M, sd_M, bar)
    startup: int = STARTUP
    knobs: int | None = None
    """So many knobs are drawn by chance at each iteration, and only those are turned."""

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        began = time.monotonic()
        rng = rng_for("surrogate", memory)
        told = Told.of(memory.evidence, best=BEST, latest=LATEST)
        draw = None
        if len(told.measured) >= self.startup:
            draws = (Draw(edit, "most promising") for edit in self._edits(rng, memory, told))
            draw = first_allowed(self.rails, memory, draws, 200)
        if draw is None:
            draw = first_allowed(self.rails, memory, uniform_draws(rng, memory, "chance"), 400)
        if draw is None:
            raise exhausted(memory, 600)
        record = ProposerRecord(kind="surrogate", latency_s=time.monotonic() - began)
        return Offer(draw.raw, record)

    def _edits(self, rng: Random, memory: Memory, told: Told) -> list[Edit]:
        promise = Promise.of(memory, told, self.fit)
        around = promise.neighbourhood
        if self.knobs is not None:
            around = around.among(rng.sample(around.names, min(self.knobs, len(around.names))))
        if self.by_steps:
            drawn = around.drawn(rng, promise.elites if self.towards_elites else (), EDITS)
        else:
            drawn = [around.by_chance(rng) for _ in range(EDITS)]
        best = self._ranked(rng, promise, drawn)
        if not self.varied:
            return best
        more = [around.varied(rng, edit) for edit in best[:10] for _ in range(12)]
        return self._ranked(rng, promise, [*best, *more])

    def _ranked(self, rng: Random, promise: Promise, edits: Sequence[Edit]) -> list[Edit]:
        some = [edit for edit in edits if edit]
        if not some:
            return []
        points_MP = promise.space.edited(promise.neighbourhood.now, some)
        worth_M = self.worth(rng, *promise.scores.predict(points_MP), promise.bar)
        if promise.failing is not None:
            worth_M = worth_M * (1 - np.clip(promise.failing.predict(points_MP)[0], 0, 1))
        return [some[place] for place in np.argsort(-worth_M, kind="stable")]


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A process, and chance on every ``every``-th iteration, as SMAC has it on every
    second (Hutter, Hoos and Leyton-Brown 2011)."""

    rails: Rails
    every: int

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        kind = SurrogateProposer if memory.iter % self.every else RandomProposer
        return kind(self.rails).propose(memory)


def expected_improvement(mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
    """By how much a normal variable falls below the bar, in the mean (Mockus, Tiesis and Zilinskas
    1978)."""
    z_M = (bar - mean_M) / sd_M
    below_M = 0.5 * np.array([math.erfc(-z / math.sqrt(2)) for z in z_M.tolist()])
    density_M = np.exp(-0.5 * z_M**2) / math.sqrt(2 * math.pi)
    improvement_M: Floats = (bar - mean_M) * below_M + sd_M * density_M
    return improvement_M


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
