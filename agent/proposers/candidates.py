"""Generate candidates for a surrogate model, and refine them by its choice.

A few hundred draws over a dozen knobs miss every maximum of the expectation. So crossings of good
configs are drawn too, and the most promising of all are varied and scored again for some rounds, as
in SMAC (Hutter, Hoos and Leyton-Brown 2011). docs/search.md measures the benefit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from random import Random

import numpy as np

from agent.proposers.draws import Edit, Edits
from agent.proposers.surrogate.promise import Promise
from agent.proposers.surrogate.scales import Floats, anywhere, near
from agent.proposers.surrogate.space import Values
from autoresearch.values import Scalar

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
    return _sized(edits, [_cross(rng, edits, parents) for _ in range(CROSSED)])


def _cross(rng: Random, edits: Edits, parents: list[Values]) -> Edit:
    both = rng.choice(parents), rng.choice(parents)
    return edits.against({name: rng.choice(both)[name] for name in edits.now})


def _varied(rng: Random, edits: Edits, edit: Edit) -> Edit:
    """Move one to three knobs, mostly a little; only knobs already changed once the limit is
    reached."""
    there = {**edits.now, **edit}
    names = [name for name in (there if len(edit) < edits.most else edit) if name in edits.domains]
    for name in rng.sample(names, min(rng.choice(MOVED), len(names))):
        there[name] = _moved(rng, edits, name, there[name])
    return edits.against(there)


def _moved(rng: Random, edits: Edits, name: str, value: Scalar) -> Scalar:
    domain = edits.domains[name]
    if rng.random() < SMALL:
        return near(domain, value, rng.choice(REACHES), rng)
    return anywhere(domain, rng)


def _sized(edits: Edits, found: list[Edit]) -> list[Edit]:
    return [edit for edit in found if 0 < len(edit) <= edits.most]


def _new(more: list[Edit], found: list[Edit]) -> list[Edit]:
    """Return the new candidates that are not known yet, each once."""
    known = {frozenset(edit.items()) for edit in found}
    by_key = {frozenset(edit.items()): edit for edit in more}
    return [edit for key, edit in by_key.items() if key not in known]
