"""Combine proposers: a model that chooses from a sampler's slates, and a fallback.

If a model's turn fails, the other proposer makes the proposal. The record says why and keeps every
attempt. (``Patience`` limits the cost of a dead endpoint.)

Choosing the proposer is a bandit problem. Keeps are rare, so a reward of keeps would take a night
to tell a good model from a harmful one. Instead every turn is credited with the difference between
its result and what a pick by chance from the same slate would come to
(:class:`trajectory.track_record.Credit`). The arms are the search's own draw, the model's pick and
the model's own changes. Each iteration draws from each arm's posterior (Thompson 1933), narrowed,
and the model takes part if its picks beat the search's draw. docs/evidence.md has the figures.

A language model that only picks from such a slate cannot propose anything worse than the search
would have proposed by itself, and even half-good picks pay (docs/search.md).
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from random import Random
from statistics import NormalDist, fmean, pvariance
from string import ascii_uppercase
from typing import Self, TypeAlias

from threadpoolctl import threadpool_limits

from agent.menu.rails import Rails
from agent.proposers.base import Offer, Proposer, ProposerError, SearchView
from agent.proposers.draws import rng_for
from agent.proposers.surrogate.observed import Observed, prior_points
from agent.proposers.surrogate.promise import Promise
from autoresearch.errors import MachineryError
from autoresearch.safe_text import plain, redact
from autoresearch.values import Scalar
from trajectory.proposals import Arm, Prediction
from trajectory.track_record import PRIOR_WEIGHT, SEARCH, Credit

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
    def drawn(cls, sampler: Proposer, rails: Rails, view: SearchView) -> Self:
        """Draw a slate, each candidate as if those before it were being trained.

        :raises ProposerError: if there is not even one.
        """
        offers = [sampler.propose(view)]
        known = view
        for place in range(1, SIZE):
            config = rails.check(offers[-1].reply, view.reference, known.tried).config
            if config is None:
                break
            known = replace(
                known, pending=(*known.pending, config), seed=view.seed + place * _APART
            )
            try:
                offers.append(sampler.propose(known))
            except ProposerError:  # of a menu that is nearly exhausted
                break
        edits = [offer.reply.changes for offer in offers]
        observed = Observed.of(view.evidence)
        priors = prior_points(view, len(observed.measured))
        # of everything measured so far, without the configs in flight
        with threadpool_limits(limits=1, user_api="blas"):
            promise = Promise.of(replace(view, pending=()), observed, priors)
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


Choose: TypeAlias = Callable[[SearchView, Slate, Collection[Arm]], Offer]
"""Offers one of a slate's candidates, or changes of its own; the arms are what it may do. It raises
ProposerError if the model gives none."""


SAID_CHARACTERS = 300
"""Most characters of an unexpected error to repeat."""
SHARE = 0.2
ARMS: tuple[Arm, ...] = ("pick", "own")
"""Arms of a model that is shown a slate."""
BOLDNESS = 0.7
"""Share of a posterior's standard deviation that its draws have. At 1, as in Thompson's rule, they
explore as if a night had no end."""


class HybridProposer:
    """The sampler draws a slate, and the model chooses from it while that pays.

    The turn depends only on the seed, the iteration and earlier rows. A record with ``overrode``
    set says which proposal would have been made without the model.

    :param choose: asks a language model; None: only the sampler.
    :param share: chance that an arm of the model has the turn before anything was measured; 0:
        never, 1: always.
    """

    def __init__(
        self, sampler: Proposer, choose: Choose | None, rails: Rails, *, share: float = SHARE
    ) -> None:
        self._sampler = sampler
        self._choose = choose if share else None
        self._rails = rails
        self._share = share

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the sampler has none.
        """
        choose = self._choose
        if choose is None:
            return self._sampler.propose(view)
        # without a slate there is still the sampler
        return first_of(lambda: self._with_slate(view, choose), lambda: self._sampler.propose(view))

    def _with_slate(self, view: SearchView, choose: Choose) -> Offer:
        began = time.monotonic()
        slate = Slate.drawn(self._sampler, self._rails, view)
        prediction = slate.prediction(slate.candidates[0].changes)
        drawn_s = time.monotonic() - began
        suggested = _with_record(slate.offers[0], prediction=prediction, latency_s=drawn_s)
        arms = self.arms(view)
        if not arms:
            return suggested

        def chosen() -> Offer:
            offer = choose(view, slate, arms)
            return _with_record(offer, latency_s=offer.record.latency_s + drawn_s)

        return first_of(chosen, lambda: suggested)

    def arms(self, view: SearchView) -> tuple[Arm, ...]:
        """Return what the model may do at this iteration; nothing if it is the search's turn.

        Without the right to pick it is not asked at all, so that a harmful model costs no more
        turns for having two arms.
        """
        if self._share == 1:
            return ARMS
        rng, known = rng_for("turn", view), view.evidence.credits
        prior = prior_mean(self._share)
        bar = drawn(rng, known.get(SEARCH, Credit()))
        won = [drawn(rng, known.get(arm, Credit()), prior) > bar for arm in ARMS]
        return tuple(arm for arm, wins in zip(ARMS, won, strict=True) if wins and won[0])


def prior_mean(share: float) -> float:
    """Return the mean credit at which an arm without turns beats another with this chance."""
    return NormalDist(0, BOLDNESS * (2 / PRIOR_WEIGHT) ** 0.5).inv_cdf(share)


def drawn(rng: Random, credit: Credit, prior: float = 0.0) -> float:
    """Draw an arm's mean credit from its narrowed posterior."""
    mean, sd = credit.posterior(prior)
    return rng.gauss(mean, BOLDNESS * sd)


@dataclass(frozen=True, slots=True)
class FallbackProposer:
    """A proposer with a fallback for its failures."""

    primary: Proposer
    fallback: Proposer

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the fallback has none either.
        """
        return first_of(lambda: self.primary.propose(view), lambda: self.fallback.propose(view))


def first_of(primary: Callable[[], Offer], fallback: Callable[[], Offer]) -> Offer:
    """Return an offer, or the fallback's with the failed attempts of the first.

    :raises ProposerError: if the fallback has none either.
    """
    try:
        return primary()
    except MachineryError:
        raise
    except Exception as error:  # noqa: BLE001 (a proposer's bug costs only its iteration)
        if not isinstance(error, ProposerError):
            said = plain(f"{type(error).__name__}: {redact(str(error))}")[:SAID_CHARACTERS]
            error = ProposerError(f"the proposer failed ({said}); it is asked again later")
        failed = error
    offer = fallback()
    return _with_record(
        offer,
        fallback="; ".join(filter(None, (offer.record.fallback, str(failed)))),
        attempts=failed.attempts,
        model=failed.model,
        prompt_sha256=failed.prompt_sha256,
        latency_s=offer.record.latency_s + sum(one.latency_s for one in failed.attempts),
    )


def _with_record(offer: Offer, **changed: object) -> Offer:
    return replace(offer, record=offer.record.model_copy(update=changed))
