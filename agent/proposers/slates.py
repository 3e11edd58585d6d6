"""Show several of a search's candidates at once, with what a surrogate predicts of each.

A language model that only picks from such a slate cannot propose anything worse than the search
would have proposed by itself, and even half-good picks pay (docs/search.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, pvariance
from string import ascii_uppercase
from typing import Self, TypeAlias

from threadpoolctl import threadpool_limits

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer, ProposerError
from agent.proposers.surrogate.observed import Observed
from agent.proposers.surrogate.prior_points import prior_points
from agent.proposers.surrogate.promise import Promise
from autoresearch.values import Scalar
from trajectory.proposals import Arm, Prediction

SIZE = 4
_APART = 1_000_003
"""Difference of the seeds of two draws of a slate, larger than any that a person chooses."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Changes of the reference, and the surrogate's prediction of their effect."""

    changes: Mapping[str, Scalar]
    delta: float
    """Predicted objective minus the reference's: negative is better."""
    sd: float


@dataclass(frozen=True, slots=True)
class Slate:
    """Distinct candidates of one iteration, the search's own proposal first."""

    offers: tuple[Offer, ...]
    candidates: tuple[Candidate, ...]
    promise: Promise

    @classmethod
    def drawn(cls, sampler: Proposer, rails: Rails, memory: Memory, size: int = SIZE) -> Self:
        """Draw a slate, each candidate as if those before it were being trained.

        :raises ProposerError: if there is not even one.
        """
        offers = [sampler.propose(memory)]
        known = memory
        for place in range(1, size):
            config = rails.check(offers[-1].raw, memory.reference, known.tried).config
            if config is None:
                break
            known = replace(
                known, pending=(*known.pending, config), seed=memory.seed + place * _APART
            )
            try:
                offers.append(sampler.propose(known))
            except ProposerError:  # of a menu that is nearly exhausted
                break
        edits: list[dict[str, Scalar]] = [json.loads(offer.raw)["changes"] for offer in offers]
        promise = surrogate(memory)
        predicted = zip(*promise.effects(edits), strict=True)
        candidates = (
            Candidate(edit, delta, sd) for edit, (delta, sd) in zip(edits, predicted, strict=True)
        )
        return cls(tuple(offers), tuple(candidates), promise)

    @property
    def names(self) -> str:
        """Names of the candidates, a letter each."""
        return ascii_uppercase[: len(self.candidates)]

    def at(self, changes: Mapping[str, Scalar]) -> int | None:
        """Return the place of the candidate with these changes, if it is one."""
        return next((n for n, one in enumerate(self.candidates) if one.changes == changes), None)

    def prediction(self, changes: Mapping[str, Scalar]) -> Prediction:
        """Return the prediction for some changes, beside that for a pick by chance."""
        (delta,), (sd,) = self.promise.effects([changes])
        deltas = [candidate.delta for candidate in self.candidates]
        variance = pvariance(deltas) + fmean(candidate.sd**2 for candidate in self.candidates)
        return Prediction(
            delta=delta, sd=sd, slate_delta=fmean(deltas), slate_sd=math.sqrt(variance)
        )


Choose: TypeAlias = Callable[[Memory, Slate, Collection[Arm]], Offer]
"""Offers one of a slate's candidates, or changes of its own; the arms are what it may do. It raises
ProposerError if the model gives none."""


def surrogate(memory: Memory) -> Promise:
    """Return the surrogate of everything measured so far, without the configs in flight."""
    observed = Observed.of(memory.evidence)
    priors = prior_points(memory, len(observed.measured))
    with threadpool_limits(limits=1, user_api="blas"):
        return Promise.of(replace(memory, pending=()), observed, priors)
