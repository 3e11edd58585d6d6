"""A trust region about the reference (after TuRBO; Eriksson, Pearce, Gardner, Turner and Poloczek
2019, arXiv 1910.04951): a model chooses among edits of any number of knobs that stay within reach,
and the reach grows with each keep and shrinks where many candidates in a row were not kept.

The reach follows from the campaign's rows alone, so nothing is lost when it is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, Edit, Edits, offered
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.promise import Fit, Promise, expected_improvement
from agent.proposers.surrogate.scales import is_ordered, near
from agent.proposers.surrogate.told import Told
from bench.searches.variants import STARTUP, Worth
from trajectory.evidence import ConfigEvidence

FIRST, LONGEST, SHORTEST = 0.4, 0.8, 0.02
"""Standard deviations of a step, as shares of a knob's domain. Below the shortest it begins anew.
"""
PATIENCE = 8
"""Candidates in a row that were not kept, after which the reach is halved."""
TURNED = 6
"""Knobs that a candidate turns, in the mean."""
EDITS = 400


def reach(entries: Iterable[ConfigEvidence]) -> float:
    """How far steps go after these candidates, in the order of their iterations."""
    now, fruitless = FIRST, 0
    for entry in entries:
        if entry.action == "keep":
            now, fruitless = min(2 * now, LONGEST), 0
            continue
        fruitless += 1
        if fruitless == PATIENCE:
            now, fruitless = now / 2, 0
            now = now if now >= SHORTEST else FIRST
    return now


@dataclass(frozen=True, slots=True)
class TrustRegion:
    """The most promising of several hundred edits within reach."""

    rails: Rails
    fit: Fit = GaussianProcess.fit
    worth: Worth = lambda _: expected_improvement

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("surrogate", self.rails, memory, lambda rng: self._draws(rng, memory), 200)

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        told = Told.of(memory.evidence)
        if len(told.measured) < STARTUP:
            return
        promise, around = Promise.of(memory, told, self.fit), Edits.of(memory)
        entries = sorted(memory.evidence.configs.values(), key=lambda entry: entry.iter)
        far = reach(entry for entry in entries if entry.iter)
        edits = [edit for _ in range(EDITS) if (edit := _within(rng, around, far))]
        if not edits:
            return
        worth_M = promise.worth(edits, promise.reference_bar, self.worth(rng))
        for place in np.argsort(-worth_M, kind="stable"):
            yield Draw(edits[place], f"most promising within {far:.2f}")


def _within(rng: Random, around: Edits, far: float) -> Edit:
    """Some knobs moved; one without an order is turned as seldom as the reach is short."""
    chance = min(1.0, TURNED / len(around.domains))
    edit: Edit = {}
    for name, domain in around.domains.items():
        if rng.random() >= chance or (not is_ordered(domain) and rng.random() >= far):
            continue
        value = near(domain, around.now[name], far, rng)
        if value != around.now[name]:
            edit[name] = value
    most = list(edit)[: around.most]
    return {name: edit[name] for name in most}
