"""A search by a surrogate among neighbours, and the same with one thing done otherwise."""

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
from agent.proposers.candidates import drawn
from agent.proposers.draws import Draw, Edit, Edits, offered
from agent.proposers.sampler import LEAST, LEAST_SHARE, MOST_SHARE, far_and_near
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.promise import Acquisition, Fit, Promise, expected_improvement
from agent.proposers.surrogate.scales import Floats
from agent.proposers.surrogate.told import Told, is_sound
from agent.proposers.uniform import RandomProposer
from bench.searches.neighbours import Neighbourhood

Worth: TypeAlias = Callable[[Random], Acquisition]
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
    worth: Worth = lambda _: expected_improvement
    startup: int = STARTUP
    knobs: int | None = None
    """So many knobs are drawn by chance at each iteration, and only those are turned."""

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("surrogate", self.rails, memory, lambda rng: self._draws(rng, memory), 200)

    def _draws(self, rng: Random, memory: Memory) -> list[Draw]:
        told = Told.of(memory.evidence)
        if len(told.measured) < self.startup:
            return []
        return [Draw(edit, "most promising") for edit in self._edits(rng, memory, told)]

    def _edits(self, rng: Random, memory: Memory, told: Told) -> list[Edit]:
        promise, around = Promise.of(memory, told, self.fit), Neighbourhood.of(memory)
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
        worth_M = promise.worth(some, promise.reference_bar, self.worth(rng))
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


def draws_alone(
    rng: Random, edits: Edits, promise: Promise, bar: float, allowed: Callable[[Edit], bool]
) -> tuple[list[Edit], Floats]:
    """In the place of :func:`agent.proposers.candidates.climbed`: no crossings, no variations."""
    found = drawn(rng, edits, promise)
    return found, promise.worth(found, bar)


def thompson(rng: Random) -> Acquisition:
    """One draw for each edit, as if they had nothing in common."""

    def worth(mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
        drawn_M = np.array([rng.gauss(0, 1) for _ in mean_M])
        worth_M: Floats = np.maximum(bar - mean_M - sd_M * drawn_M, 0)
        return worth_M

    return worth


def chance_to_improve(_rng: Random) -> Acquisition:
    """The probability to be better at all (Kushner 1964)."""

    def worth(mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
        z_M = (bar - mean_M) / sd_M
        return np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in z_M.tolist()])

    return worth


def mean_alone(_rng: Random) -> Acquisition:
    """What is believed, however uncertain: no exploration."""

    def worth(mean_M: Floats, _sd_M: Floats, bar: float) -> Floats:
        worth_M: Floats = np.exp(bar - mean_M)
        return worth_M

    return worth


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


def ranked_share(memory: Memory) -> float:
    """Of far draws among chance's, by how many of them are better than the middle near one, as half
    of the near ones are."""
    far, near = far_and_near(memory)
    if min(len(far), len(near)) < LEAST:
        return 0.5
    middle = float(np.median(near))
    better = (sum(score < middle for score in far) + 0.5) / (len(far) + 1)
    return min(max(better / (better + 0.5), LEAST_SHARE), MOST_SHARE)


def expected_share(memory: Memory) -> float:
    """Of far draws among chance's, far being more than a few knobs: that of what they are expected
    to improve on the reference by, as the better half of what each kind scored tells."""
    far: list[float] = []
    near: list[float] = []
    for one in memory.evidence.configs.values():
        if one.iter and (one.scores or one.failures):
            score = one.mean if is_sound(one) else math.inf
            (far if len(one.changes) > memory.few_changes else near).append(score)
    near = near[-20:]
    if min(len(far), len(near)) < LEAST:
        return 0.5
    bar = memory.evidence.configs[memory.reference.config_hash].mean
    gains = [_expected(one, bar) for one in (far, near)]
    share = gains[0] / max(sum(gains), 1e-300)
    return min(max(share, LEAST_SHARE), MOST_SHARE)


def _expected(every: Sequence[float], bar: float) -> float:
    """Improvement on the bar, of one that may fail."""
    scores = [score for score in every if math.isfinite(score)]
    if not scores:
        return 0.0
    middle = float(np.median(scores))
    below = [middle - score for score in scores if score < middle]
    spread = math.sqrt(math.fsum(x * x for x in below) / max(len(below), 1)) or 1e-9
    gain = float(expected_improvement(np.array([middle]), np.array([spread]), bar)[0])
    return gain * len(scores) / len(every)
