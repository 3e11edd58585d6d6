"""A search near the reference and far from it at once.

Edits of a few knobs of the reference are what a search lives on where the baseline is good, and a
night of them stays in a poor baseline's corner where it is not: of 797 draws from cpu-tiny's whole
menu 6 % were better than the baseline by more than any of 89 edits of one to three of its knobs was
(0.085 bpb, on two seeds), and on the recipe of five minutes draws from the whole menu lead nowhere.
So candidates are of both kinds, near and far, and a Gaussian
process over the whole menu says which is promising. Half of the turns are chance's: without them a
model goes on refining what it knows, and what they find is what it learns from. How many of those
are far follows from what far and near ones have scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw
from agent.proposers.sampler import Told
from bench.searches.offering import offered
from bench.searches.surrogate.gaussian_process import GaussianProcess
from bench.searches.surrogate.neighbours import Edit, Neighbourhood
from bench.searches.surrogate.promise import Fit, Promise
from bench.searches.surrogate.told import BEST, LATEST
from bench.searches.variants import expected_improvement

STARTUP = 8
NEAR = 3
"""Knobs that a near candidate turns at most."""
CHANCE = 0.5
EDITS = 300
LATEST_NEAR = 20
LEAST = 4
"""Of each kind measured, before which both are as likely."""
LEAST_SHARE, MOST_SHARE = 0.05, 0.9


def far_share(memory: Memory) -> float:
    """That of what far draws are expected to improve on the reference by, as the better half of
    what each kind scored tells."""
    far, near = _scores(memory)
    if min(len(far), len(near)) < LEAST:
        return 0.5
    bar = memory.evidence.configs[memory.reference.config_hash].mean
    gains = [_expected(one, bar) for one in (far, near)]
    share = gains[0] / max(sum(gains), 1e-300)
    return min(max(share, LEAST_SHARE), MOST_SHARE)


def ranked_share(memory: Memory) -> float:
    """By how many far draws are better than the middle near one, as half of the near ones are."""
    far, near = _scores(memory)
    if min(len(far), len(near)) < LEAST:
        return 0.5
    middle = float(np.median(near))
    better = (sum(score < middle for score in far) + 0.5) / (len(far) + 1)
    return min(max(better / (better + 0.5), LEAST_SHARE), MOST_SHARE)


def _scores(memory: Memory) -> tuple[list[float], list[float]]:
    """Of the far ones, and of the latest near ones."""
    tried = [one for one in memory.evidence.configs.values() if one.iter and one.scores]
    far = [one.mean for one in tried if len(one.changes) > NEAR]
    near = [one.mean for one in tried if len(one.changes) <= NEAR]
    return far, near[-LATEST_NEAR:]


def _expected(scores: Sequence[float], bar: float) -> float:
    middle = float(np.median(scores))
    below = [middle - score for score in scores if score < middle]
    spread = math.sqrt(math.fsum(x * x for x in below) / max(len(below), 1)) or 1e-9
    return float(expected_improvement(np.array([middle]), np.array([spread]), bar)[0])


@dataclass(frozen=True, slots=True)
class Wide:
    """The most promising of near and far candidates, and chance at every other turn or so."""

    rails: Rails
    fit: Fit = GaussianProcess.fit
    chance: float = CHANCE
    best: bool = True
    """Whether what is improved on is the best that was measured, as the model believes it, kept or
    not; else the reference."""
    far: float = 0.5
    """Share of the candidates that turn more knobs than a near one."""
    share: Callable[[Memory], float] = far_share
    """Of far draws among chance's."""

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("surrogate", self.rails, memory, lambda rng: self._draws(rng, memory), 200)

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        told = Told.of(memory.evidence, best=BEST, latest=LATEST)
        share = self.share(memory)
        if len(told.measured) < STARTUP or rng.random() < self.chance:
            around = Neighbourhood.of(memory)
            while True:
                if rng.random() < share:
                    yield Draw(everywhere(rng, around), "drawn from the whole menu")
                else:
                    yield Draw(turned(rng, around, 1, NEAR), "drawn about the reference")
        promise = Promise.of(memory, told, self.fit)
        edits = self._candidates(rng, promise)
        points_MP = promise.space.edited(promise.neighbourhood.now, edits)
        bar = promise.bar
        if self.best and promise.elites:
            points = promise.space.points(promise.elites)
            bar = min(bar, float(promise.scores.predict(points)[0].min()))
        worth_M = expected_improvement(*promise.scores.predict(points_MP), bar)
        if promise.failing is not None:
            worth_M = worth_M * (1 - np.clip(promise.failing.predict(points_MP)[0], 0, 1))
        for place in np.argsort(-worth_M, kind="stable"):
            yield Draw(edits[place], "most promising")

    def _candidates(self, rng: Random, promise: Promise) -> list[Edit]:
        around = promise.neighbourhood
        origins = [around.now, *promise.elites[:3]]
        edits = []
        for _ in range(EDITS):
            if rng.random() < self.far:
                edits.append(
                    everywhere(rng, around)
                    if rng.random() < 0.5
                    else turned(rng, around, NEAR + 1, len(around.names))
                )
            else:
                origin = around.now if rng.random() < 0.5 else rng.choice(origins)
                moved = turned(rng, around, 1, NEAR)
                there = {**origin, **moved}
                edits.append(
                    {name: value for name, value in there.items() if value != around.now[name]}
                )
        return [edit for edit in edits if edit]


def everywhere(rng: Random, around: Neighbourhood) -> Edit:
    """Every knob uniformly over its scale."""
    return turned(rng, around, len(around.names), len(around.names))


def turned(rng: Random, around: Neighbourhood, least: int, most: int) -> Edit:
    """Some knobs, each set uniformly over its scale."""
    count = min(rng.randint(least, max(least, most)), len(around.names))
    edit: Edit = {}
    for name in rng.sample(around.names, count):
        domain = around.domains[name]
        value = domain.normal(domain.rounded(domain.draw(rng)))
        if value != around.now[name]:
            edit[name] = value
    return edit
