"""A search near the reference and far from it at once.

Edits of a few knobs of the reference are what a search lives on where the baseline is good, and a
night of them stays in a poor baseline's corner where it is not: of 797 draws from cpu-tiny's whole
menu 6 % were better than the baseline by more than any of 89 edits of one to three of its knobs was
(0.085 bpb, on two seeds), and on another recipe draws from the whole menu lead nowhere. So
candidates are of both kinds, and a Gaussian process over the whole menu says which is promising.

Every other turn or so is chance's: without it a model goes on refining what it knows, and what
chance finds is what it learns from. How many of those draws are far follows from how near to the
reference of their time far and near ones came. What the parts are worth is in docs/search.md.

All of it is had anew for each iteration and drawn from (seed, iter), so that a proposer that was
born this minute offers what one that ran all night would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from statistics import fmean

import numpy as np
from threadpoolctl import ThreadpoolController

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.candidates import climbed
from agent.proposers.draws import Draw, Edit, Edits, gate, offered
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.observed import Observed, is_sound
from agent.proposers.surrogate.prior_points import prior_points
from agent.proposers.surrogate.promise import Fit, Promise

STARTUP = 8
"""Configs to learn from before the model is asked; until then all turns are chance's."""
CHANCE = 0.5
MARGIN = 1.0
DRAWS = 200
LATEST = 20
LEAST = 4
"""Of each kind measured, before which both are as likely."""
LEAST_SHARE, MOST_SHARE = 0.05, 0.9


def far_share(memory: Memory) -> float:
    """Of far draws among chance's: that of what another like them is hoped to improve on its
    reference by, in the mean over the latest of each kind."""
    far, near = far_and_near(memory)
    if min(len(far), len(near)) < LEAST:
        return 0.5
    sigma = memory.evidence.sigma or 0.0
    gains = [fmean(_hope(above, sigma) for above in kind) for kind in (far, near)]
    share = gains[0] / max(sum(gains), 1e-300)
    return min(max(share, LEAST_SHARE), MOST_SHARE)


def _hope(above: float, sigma: float) -> float:
    """What one like this may gain: what it gained, a little of that where it missed by no more than
    a run's noise, nothing where it was far off or failed."""
    if not sigma or abs(above) > 30 * sigma:
        return max(-above, 0.0)
    return sigma * math.log1p(math.exp(-above / sigma))


def far_and_near(memory: Memory) -> tuple[list[float], list[float]]:
    """How far above the reference of their time the latest far candidates scored, and the latest
    near ones; infinity where one failed or was stopped.

    Far are those that turned more than half of the knobs: what the model makes of the reference in
    four or five of them is no draw from the whole menu, and says nothing of what one is worth.
    """
    far: list[float] = []
    near: list[float] = []
    half = len(memory.menu.knobs) / 2
    moves = memory.reference.config_hash == memory.evidence.incumbent_hash
    reference = math.inf
    for one in memory.evidence.configs.values():
        if one.iter and (one.scores or one.failures):
            above = one.mean - reference if is_sound(one) else math.inf
            if len(one.changes) > half:
                far.append(above)
            elif len(one.changes) <= memory.few_changes:
                near.append(above)
        if one.scores and (not one.iter or (moves and one.action == "keep")):
            reference = one.mean  # where all races are against the baseline it stays the baseline
    return far[-LATEST:], near[-LATEST:]


@dataclass(frozen=True, slots=True)
class SamplerProposer:
    """The most promising of near and far candidates, and chance at every other turn or so.

    Draws that the rails refuse or that were tried before are drawn again.
    """

    rails: Rails
    fit: Fit = GaussianProcess.fit
    chance: float = CHANCE
    """Share of the turns that are chance's."""
    margin: float = MARGIN
    """By how many of the gains that a race could just prove a candidate is to improve."""

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the menu seems exhausted.
        """
        # A hundred configs are too few to share: two threads took four times as long as one where
        # trials had the cores.
        with _threads().limit(limits=1, user_api="blas"):
            return offered(
                "sampler", self.rails, memory, lambda rng: self._draws(rng, memory), DRAWS
            )

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        observed = Observed.of(memory.evidence)
        measured = len(observed.measured)
        priors = prior_points(memory, measured)
        known = f"{measured} measured configs"
        if priors:
            known += f" and {len(priors)} of earlier campaigns"
        if measured + len(priors) < STARTUP:
            return self._by_chance(rng, memory, f"{known}, of {STARTUP} to start a model with")
        if rng.random() < self.chance:
            return self._by_chance(rng, memory, "every other turn is chance's")
        return self._by_model(rng, memory, Promise.of(memory, observed, self.fit, priors), known)

    def _by_model(
        self, rng: Random, memory: Memory, promise: Promise, known: str
    ) -> Iterator[Draw]:
        """The candidates, the most promising first."""
        bar = promise.best_bar - self.margin * promise.provable
        passes = gate(self.rails, memory)

        def allowed(edit: Edit) -> bool:
            return passes(Draw(edit, known))

        found, worth_M = climbed(rng, Edits.of(memory), promise, bar, allowed)
        for place in np.argsort(-worth_M, kind="stable"):
            yield Draw(found[place], f"most promising of {len(found)} by {known}")

    def _by_chance(self, rng: Random, memory: Memory, why: str) -> Iterator[Draw]:
        """Without end."""
        edits = Edits.of(memory)
        share = far_share(memory) if edits.most > edits.few else 0.0
        while True:
            if rng.random() < share:
                yield Draw(edits.whole(rng), f"drawn uniformly, from the whole menu: {why}")
            else:
                yield Draw(edits.small(rng), f"drawn uniformly, near the reference: {why}")


@cache
def _threads() -> ThreadpoolController:
    """Of the libraries that are loaded, which takes a millisecond to find out."""
    return ThreadpoolController()
