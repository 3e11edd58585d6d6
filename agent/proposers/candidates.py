"""What a model is asked to choose among, and how that choice is refined.

A few hundred draws over a dozen knobs come near no maximum of what is expected. So crossings of
good configs are drawn besides, and the most promising of all are varied and asked about again, some
rounds of it, as SMAC does (Hutter, Hoos and Leyton-Brown 2011). What that is worth is in
docs/search.md.
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
"""Of the best configs, of which near candidates are edits, as well as of the reference."""
ROUNDS, LEADING, VARIED = 3, 6, 16
"""In each round the leading candidates are varied so many times each."""
CHECKED = 40
"""Of the most promising, among whom those that lead a round are looked for."""
MOVED = (1, 1, 2, 3)
"""How many knobs of one, each as likely."""
REACHES = (0.03, 0.1, 0.25)
"""Standard deviations of small steps, as shares of a knob's domain."""
SMALL = 0.7
"""Share of the steps that are small; the others go anywhere."""


def climbed(
    rng: Random, edits: Edits, promise: Promise, bar: float, allowed: Callable[[Edit], bool]
) -> tuple[list[Edit], Floats]:
    """Return draws, crossings and variations of the best, each once, and what each is worth.

    What may not be proposed leads no round: where the way up crosses a constraint of the menu,
    hundreds beyond it would stand before the first that may.

    :param bar: the score that a candidate is to improve on.
    :param allowed: whether one may be proposed.
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
    """Half of them far, half edits of a few knobs of the reference and of the best configs."""
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
    """Each knob as one or the other of two good configs has it."""
    parents = [promise.now, *promise.elites]
    return _sized(edits, [_cross(rng, edits, parents) for _ in range(CROSSED)])


def _cross(rng: Random, edits: Edits, parents: list[Values]) -> Edit:
    both = rng.choice(parents), rng.choice(parents)
    return edits.against({name: rng.choice(both)[name] for name in edits.now})


def _varied(rng: Random, edits: Edits, edit: Edit) -> Edit:
    """One to three knobs moved on, mostly a little; of those turned, where no more may be."""
    there = {**edits.now, **edit}
    names = list(there if len(edit) < edits.most else edit)
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
    """Those of them that are not there yet, each once."""
    known = {frozenset(edit.items()) for edit in found}
    by_key = {frozenset(edit.items()): edit for edit in more}
    return [edit for key, edit in by_key.items() if key not in known]
