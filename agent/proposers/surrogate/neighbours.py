"""Edits of the reference to choose among: by chance, by small steps, and towards other good
configs.

A proposal may turn ``max_changes`` knobs of the reference. Turning a few knobs of what is good is
what makes a search go, whatever model chooses among the edits (docs/search.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from agent.proposers.base import Memory
from agent.proposers.draws import against_reference, some_knobs
from agent.proposers.surrogate.space import Values
from autoresearch.values import Scalar

Edit = dict[str, Scalar]

REACHES = (0.03, 0.1, 0.25)
"""Standard deviations of small steps, as shares of a knob's domain."""


def neighbours(rng: Random, memory: Memory, elites: Sequence[Values], count: int) -> list[Edit]:
    """So many edits of the reference, each once, none of them empty: a third by chance, a third by
    small steps, a third towards the elites where there are any.

    :param elites: the knobs of configs that are worth learning from, the best first.
    """
    ways: list[Callable[[], Edit]] = [
        lambda: by_chance(rng, memory),
        lambda: by_steps(rng, memory),
    ]
    if elites:
        ways.append(lambda: towards(rng, memory, rng.choice(elites)))
    found = {tuple(sorted(edit.items())): edit for edit in _drawn(memory, ways, count) if edit}
    return list(found.values())


def varied(rng: Random, memory: Memory, edit: Edit) -> Edit:
    """An edit with one of its knobs moved on a little, or another knob turned in its place."""
    name = rng.choice(list(edit))
    rest = {other: value for other, value in edit.items() if other != name}
    if rng.random() < 0.5:
        return against_reference(memory, rest | {name: _near(rng, memory, name, edit[name])})
    other = rng.choice([one for one in memory.menu.knobs if one not in rest])
    return against_reference(memory, rest | {other: _anywhere(rng, memory, other)})


def by_chance(rng: Random, memory: Memory) -> Edit:
    """Some knobs, each set uniformly over its scale."""
    names = some_knobs(rng, memory)
    return against_reference(memory, {name: _anywhere(rng, memory, name) for name in names})


def by_steps(rng: Random, memory: Memory) -> Edit:
    """Some knobs, each moved a little."""
    now = memory.menu.knob_values(memory.reference)
    names = some_knobs(rng, memory)
    return against_reference(memory, {name: _near(rng, memory, name, now[name]) for name in names})


def towards(rng: Random, memory: Memory, elite: Values) -> Edit:
    """Some of the knobs in which another config differs, set as they are there, and perhaps a small
    step besides."""
    there = against_reference(memory, dict(elite))
    most = min(memory.max_changes, len(there))
    if not most:
        return {}
    names = rng.sample(list(there), rng.randint(1, most))
    edit = {name: there[name] for name in names}
    if len(edit) < memory.max_changes and rng.random() < 0.5:
        name = rng.choice(list(memory.menu.knobs))
        now = memory.menu.knob_value(memory.reference, name)
        edit |= {name: _near(rng, memory, name, edit.get(name, now))}
    return against_reference(memory, edit)


def _drawn(memory: Memory, ways: Sequence[Callable[[], Edit]], count: int) -> Iterator[Edit]:
    for number in range(count):
        yield ways[number % len(ways)]()


def _anywhere(rng: Random, memory: Memory, name: str) -> Scalar:
    domain = memory.menu.domains[name]
    return domain.normal(domain.rounded(domain.draw(rng)))


def _near(rng: Random, memory: Memory, name: str, value: Scalar) -> Scalar:
    domain = memory.menu.domains[name]
    return domain.normal(domain.rounded(domain.near(value, rng.choice(REACHES), rng)))
