"""The sampler's candidates varied: a local search for what promises most, as SMAC has it (Hutter,
Hoos and Leyton-Brown 2011).

A few hundred draws over a dozen knobs come near no maximum of what is expected. So crossings of
good configs are drawn besides, and the most promising of all are varied and ranked again, some
rounds of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from agent.proposers.base import Memory
from agent.proposers.draws import Draw, Edit, Edits
from agent.proposers.sampler import candidates
from agent.proposers.surrogate.promise import Promise
from agent.proposers.surrogate.space import Values
from autoresearch.values import Scalar
from bench.searches.neighbours import REACHES
from bench.searches.steps import near

CROSSED = 100
ROUNDS, LEADING, VARIED = 3, 6, 16
"""In each round the leading candidates are varied so many times each."""


def climbing(
    rng: Random, memory: Memory, promise: Promise, bar: float, known: str
) -> Iterator[Draw]:
    """In the place of :func:`agent.proposers.sampler.by_model`."""
    edits = Edits.of(memory)
    parents = [promise.now, *promise.elites]
    crossed = [_crossed(rng, edits, parents) for _ in range(CROSSED)]
    found = [*candidates(rng, edits, promise), *_sized(edits, crossed)]
    worth_M = promise.worth(found, bar)
    for _ in range(ROUNDS):
        leading = [found[place] for place in np.argsort(-worth_M, kind="stable")[:LEADING]]
        more = _sized(edits, [_varied(rng, edits, it) for it in leading for _ in range(VARIED)])
        worth_M = np.concatenate([worth_M, promise.worth(more, bar)])
        found += more
    for place in np.argsort(-worth_M, kind="stable"):
        yield Draw(found[place], f"most promising of {len(found)} by {known}")


def _crossed(rng: Random, edits: Edits, parents: list[Values]) -> Edit:
    """Each knob as one or the other of two has it."""
    both = rng.choice(parents), rng.choice(parents)
    return _changed(edits, {name: rng.choice(both)[name] for name in edits.now})


def _varied(rng: Random, edits: Edits, edit: Edit) -> Edit:
    """One to three knobs moved on, mostly a little."""
    there = {**edits.now, **edit}
    for name in rng.sample(list(there), min(rng.choice((1, 1, 2, 3)), len(there))):
        there[name] = _moved(rng, edits, name, there[name])
    return _changed(edits, there)


def _moved(rng: Random, edits: Edits, name: str, value: Scalar) -> Scalar:
    domain = edits.domains[name]
    a_little = rng.random() < 0.7
    moved = near(domain, value, rng.choice(REACHES), rng) if a_little else domain.draw(rng)
    return domain.normal(domain.rounded(moved))


def _changed(edits: Edits, values: Values) -> Edit:
    return {name: value for name, value in values.items() if value != edits.now[name]}


def _sized(edits: Edits, found: list[Edit]) -> list[Edit]:
    return [edit for edit in found if 0 < len(edit) <= edits.most]
