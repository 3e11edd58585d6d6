"""Edits of the reference, chosen by a Gaussian process over what was measured.

Several hundred edits of at most ``max_changes`` knobs are drawn (:mod:`…surrogate.neighbours`), and
the one is proposed that a Gaussian process, told every config's mean
(:mod:`agent.proposers.surrogate.told`), expects to improve most on the reference, times the chance
that it trains at all. docs/search.md has what this was compared with.

Nothing is kept from one iteration to the next and all chance is drawn from (seed, iter), so that a
proposer that was born this minute offers what one that ran all night would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, exhausted, first_allowed, rng_for, uniform_draws
from agent.proposers.prior_scores import prior_scores
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.promise import Fit, Promise
from agent.proposers.surrogate.told import Told
from trajectory.proposals import ProposerRecord

STARTUP = 8
"""Measured configs before the process is asked; until then the draws are uniform."""
TRIES = 200
"""Edits shown to the rails, the most promising first."""
UNIFORM_DRAWS = 400
"""After those were all refused."""


class SamplerProposer:
    """The most promising of many small edits of the reference.

    Edits that the rails refuse or that were tried before are passed over.

    :param fit: the surrogate.
    """

    def __init__(self, rails: Rails, fit: Fit = GaussianProcess.fit) -> None:
        self._rails = rails
        self._fit = fit

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the menu seems exhausted.
        """
        began = time.monotonic()
        rng = rng_for("sampler", memory)
        told = Told.of(memory.evidence)
        measured = len(told.measured)
        priors = prior_scores(memory, measured)
        draw = None
        if measured + len(priors) >= STARTUP:
            of_what = f"{measured} measured configs"
            if priors:
                of_what += f" and {len(priors)} of earlier campaigns"
            promise = Promise.of(memory, told, priors, self._fit)
            draws = _promising(promise, rng, of_what)
            draw = first_allowed(self._rails, memory, draws, TRIES)
            reason = f"drawn uniformly: the {TRIES} most promising edits were tried or refused"
        else:
            reason = f"drawn uniformly: {measured} of {STARTUP} configs to start with are measured"
        if draw is None:
            uniform = uniform_draws(rng, memory, reason)
            draw = first_allowed(self._rails, memory, uniform, UNIFORM_DRAWS)
        if draw is None:
            raise exhausted(memory, TRIES + UNIFORM_DRAWS)
        return Offer(draw.raw, ProposerRecord(kind="sampler", latency_s=time.monotonic() - began))


def _promising(promise: Promise, rng: Random, of_what: str) -> Iterator[Draw]:
    for edit in promise.edits(rng):
        yield Draw(edit, f"{promise.says(edit)} by {of_what}")
