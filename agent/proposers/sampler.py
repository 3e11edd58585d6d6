"""Search near the reference and far from it at once.

Edits of a few knobs find most gains if the baseline is good, but stay near a poor baseline. Of 797
draws from the whole menu of cpu-tiny, 6 % beat its baseline by more than any of 89 edits of one to
three knobs did (0.085 bpb, on two seeds). On another recipe, draws from the whole menu found
nothing. So candidates are of both kinds, and a Gaussian process over the whole menu ranks them.

About every other iteration is a random draw: otherwise a model keeps refining what it knows, and
random finds are what it learns from. The share of far draws among them depends on how near to the
reference of their time earlier far and near draws came. docs/evidence.md has the measurements.

Everything is recomputed for each iteration and drawn from (seed, iter), so a proposer started just
now offers what one that ran all night would.

A few hundred draws over a dozen knobs miss every maximum of the expectation. So crossings of good
configs are drawn too, and the most promising of all are varied and scored again for some rounds, as
in SMAC (Hutter, Hoos and Leyton-Brown 2011). docs/search.md measures the benefit.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from statistics import fmean

import numpy as np
from threadpoolctl import ThreadpoolController

from agent.menu.rails import Rails
from agent.proposers.base import Offer, SearchView
from agent.proposers.draws import Draw, Edit, Edits, gate, offered
from agent.proposers.surrogate.observed import Observed, is_sound, prior_points
from agent.proposers.surrogate.promise import Promise
from agent.proposers.surrogate.space import Floats, anywhere, near

DRAWN, CROSSED = 300, 100
ORIGINS = 3
"""Number of best configs that near candidates edit, besides the reference."""
ROUNDS, LEADING, VARIED = 3, 6, 16
"""Rounds, candidates varied in each, and variations of each."""
CHECKED = 40
"""Most promising candidates that are checked against the rails in each round."""
MOVED = (1, 1, 2, 3)
"""Number of knobs to move, drawn uniformly."""
REACHES = (0.03, 0.1, 0.25)
"""Standard deviations of small steps, as shares of a knob's domain."""
SMALL = 0.7
"""Share of small steps; the others go anywhere."""


def climbed(
    rng: Random, edits: Edits, promise: Promise, bar: float, allowed: Callable[[Edit], bool]
) -> tuple[list[Edit], Floats]:
    """Return distinct draws, crossings and variations of the best, and their expected improvement.

    Candidates that may not be proposed lead no round. Otherwise, if the gradient crosses a
    constraint, hundreds of forbidden ones would rank before the first allowed one.

    :param bar: score that a candidate should improve on.
    :param allowed: returns whether a candidate may be proposed.
    """
    found = _new([*drawn(rng, edits, promise), *crossed(rng, edits, promise)], [])
    worth_M = promise.worth(found, bar)

    @cache
    def leads(place: int) -> bool:
        return allowed(found[place])

    for _ in range(ROUNDS):
        best = np.argsort(-worth_M, kind="stable")[:CHECKED].tolist()
        leading = [found[place] for place in islice(filter(leads, best), LEADING)]
        varied = [_varied(rng, edits, edit) for edit in leading for _ in range(VARIED)]
        more = _new(_sized(edits, varied), found)
        if more:
            found += more
            worth_M = np.concatenate([worth_M, promise.worth(more, bar)])
    return found, worth_M


def drawn(rng: Random, edits: Edits, promise: Promise) -> list[Edit]:
    """Draw candidates, half of them far, half small edits of the reference and of the best
    configs."""
    origins = (promise.now, *promise.elites[:ORIGINS])
    found = []
    for _ in range(DRAWN):
        if rng.random() < 0.5:
            found.append(edits.whole(rng) if rng.random() < 0.5 else edits.large(rng))
        else:
            origin = promise.now if rng.random() < 0.5 else rng.choice(origins)
            found.append(edits.against({**origin, **edits.small(rng)}))
    return _sized(edits, found)


def crossed(rng: Random, edits: Edits, promise: Promise) -> list[Edit]:
    """Take each knob from one or the other of two good configs."""
    parents = [promise.now, *promise.elites]
    crossings = []
    for _ in range(CROSSED):
        both = rng.choice(parents), rng.choice(parents)
        values = {name: rng.choice(both)[name] for name in edits.now}
        crossings.append(edits.against(values))
    return _sized(edits, crossings)


def _varied(rng: Random, edits: Edits, edit: Edit) -> Edit:
    """Move one to three knobs, mostly a little; only knobs already changed once the limit is
    reached."""
    there = {**edits.now, **edit}
    names = [name for name in (there if len(edit) < edits.most else edit) if name in edits.domains]
    for name in rng.sample(names, min(rng.choice(MOVED), len(names))):
        domain = edits.domains[name]
        if rng.random() < SMALL:
            there[name] = near(domain, there[name], rng.choice(REACHES), rng)
        else:
            there[name] = anywhere(domain, rng)
    return edits.against(there)


def _sized(edits: Edits, found: list[Edit]) -> list[Edit]:
    return [edit for edit in found if 0 < len(edit) <= edits.most]


def _new(more: list[Edit], found: list[Edit]) -> list[Edit]:
    """Return the new candidates that are not known yet, each once."""
    known = {frozenset(edit.items()) for edit in found}
    by_key = {frozenset(edit.items()): edit for edit in more}
    return [edit for key, edit in by_key.items() if key not in known]


STARTUP = 8
"""Configs needed before the model is used; until then all draws are random."""
CHANCE = 0.5
MARGIN = 1.0
DRAWS = 200
LATEST = 20
LEAST = 4
"""Measured configs of each kind needed before their shares may differ."""
PROMISING = 0.5
"""Least expected improvement of a language model's idea, as a share of that of the search's best
candidate, which was refined by the same surrogate."""
LEAST_SHARE, MOST_SHARE = 0.05, 0.9


def far_share(view: SearchView) -> float:
    """Return the share of far draws among random ones: the mean expected gain of the latest far
    ones, relative to both kinds."""
    far, near = far_and_near(view)
    if min(len(far), len(near)) < LEAST:
        return 0.5
    sigma = view.evidence.sigma or 0.0
    gains = [fmean(_expected_gain(above, sigma) for above in kind) for kind in (far, near)]
    share = gains[0] / max(sum(gains), 1e-300)
    return min(max(share, LEAST_SHARE), MOST_SHARE)


def _expected_gain(above: float, sigma: float) -> float:
    """Return the expected gain of a similar config: its own gain, a small part if it missed by less
    than a run's noise, nothing if it was far off or failed."""
    if not sigma or abs(above) > 30 * sigma:
        return max(-above, 0.0)
    return sigma * math.log1p(math.exp(-above / sigma))


def far_and_near(view: SearchView) -> tuple[list[float], list[float]]:
    """Return how far above the reference of their time the latest far and near candidates scored;
    infinity for failed or stopped ones.

    Far candidates changed more than half of the knobs. The model's edits of four or five knobs are
    no draws from the whole menu, and say nothing about those.
    """
    far: list[float] = []
    near: list[float] = []
    half = len(view.menu.knobs) / 2
    moves = view.reference.config_hash == view.evidence.incumbent_hash
    reference = math.inf
    for one in view.evidence.configs.values():
        if one.iter and (one.scores or one.failures):
            above = one.mean - reference if is_sound(one) else math.inf
            if len(one.changes) > half:
                far.append(above)
            elif len(one.changes) <= view.few_changes:
                near.append(above)
        if one.scores and (not one.iter or (moves and one.action == "keep")):
            # if all races are against the baseline, the reference stays the baseline
            reference = one.mean
    return far[-LATEST:], near[-LATEST:]


@dataclass(frozen=True, slots=True)
class SamplerProposer:
    """Proposes the most promising of near and far candidates, and about every other time a random
    one.

    Draws that the rails refuse or that were tried before are drawn again.
    """

    rails: Rails
    chance: float = CHANCE
    """Share of iterations with a random draw."""
    margin: float = MARGIN
    """Required improvement of a candidate, as a multiple of the gain that a race could just
    prove."""

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the menu seems exhausted.
        """
        # A hundred configs are too few to share: two threads took four times as long as one while
        # trials used the cores.
        with _threads().limit(limits=1, user_api="blas"):
            return offered("sampler", self.rails, view, lambda rng: self._draws(rng, view), DRAWS)

    def _draws(self, rng: Random, view: SearchView) -> Iterator[Draw]:
        observed = Observed.of(view.evidence)
        measured = len(observed.measured)
        priors = prior_points(view, measured)
        known = f"{measured} measured configs"
        if priors:
            known += f" and {len(priors)} of earlier campaigns"
        if measured + len(priors) < STARTUP:
            return self._by_chance(rng, view, f"{known}, of {STARTUP} to start a model with")
        if rng.random() < self.chance:
            return self._by_chance(rng, view, "about every other iteration is random")
        return self._by_model(rng, view, Promise.of(view, observed, priors), known)

    def _by_model(
        self, rng: Random, view: SearchView, promise: Promise, known: str
    ) -> Iterator[Draw]:
        """Yield a language model's ideas that are nearly as promising as the best candidate, then
        the candidates, the most promising first."""
        bar = promise.best_bar - self.margin * promise.provable
        passes, edits = gate(self.rails, view), Edits.of(view)
        found, worth_M = climbed(rng, edits, promise, bar, lambda edit: passes(Draw(edit, known)))
        ideas = [
            Draw(edits.against(one.changes), one.reason, one.model) for one in view.evidence.ideas
        ]
        idea_worth_M = promise.worth([idea.changes for idea in ideas], bar)
        least = PROMISING * max(worth_M.tolist(), default=0.0)
        for place in np.argsort(-idea_worth_M, kind="stable"):
            if idea_worth_M[place] >= least:
                yield ideas[place]
        for place in np.argsort(-worth_M, kind="stable"):
            yield Draw(found[place], f"most promising of {len(found)} by {known}")

    def _by_chance(self, rng: Random, view: SearchView, why: str) -> Iterator[Draw]:
        """Yield random draws without end."""
        edits = Edits.of(view)
        share = far_share(view) if edits.most > edits.few else 0.0
        while True:
            if rng.random() < share:
                yield Draw(edits.whole(rng), f"drawn uniformly, from the whole menu: {why}")
            else:
                yield Draw(edits.small(rng), f"drawn uniformly, near the reference: {why}")


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of the loaded libraries' threads; finding them takes a millisecond."""
    return ThreadpoolController()
