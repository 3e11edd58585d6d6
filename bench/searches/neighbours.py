"""Edits of the reference to choose among: by chance, by small steps, and towards other good
configs.

An edit turns ``few_changes`` knobs of the reference at most. Turning a few knobs of what is good is
what makes a search go, whatever model chooses among the edits (docs/search.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Self

from agent.proposers.base import Memory
from agent.proposers.candidates import REACHES
from agent.proposers.draws import Edit
from agent.proposers.surrogate.scales import anywhere, near
from agent.proposers.surrogate.space import Values
from autoresearch.domains.base import Domain
from autoresearch.values import Scalar


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What a proposal may make of the reference."""

    domains: Mapping[str, Domain]
    now: Values
    """The reference's knobs."""
    names: tuple[str, ...]
    most: int
    """Knobs that an edit may turn."""

    @classmethod
    def of(cls, memory: Memory) -> Self:
        domains = memory.menu.domains
        now = memory.menu.knob_values(memory.reference)
        return cls(domains, now, tuple(domains), min(memory.few_changes, len(domains)))

    def among(self, names: Sequence[str]) -> Self:
        """What a proposal may make of it by turning some of these knobs alone."""
        return replace(self, names=tuple(names), most=min(self.most, len(names)))

    def drawn(self, rng: Random, elites: Sequence[Values], count: int) -> list[Edit]:
        """So many draws, a third by chance, a third by small steps and a third towards the elites,
        where there are any; each edit once, and none that changes nothing.

        :param elites: the knobs of configs that are worth learning from.
        """
        edits = [
            self.towards(rng, rng.choice(elites))
            if elites and number % 3 == 2
            else self.by_steps(rng)
            if number % 2
            else self.by_chance(rng)
            for number in range(count)
        ]
        return list({tuple(sorted(edit.items())): edit for edit in edits if edit}.values())

    def by_chance(self, rng: Random) -> Edit:
        """Some knobs, each set uniformly over its scale."""
        return self._changed({name: self._anywhere(rng, name) for name in self._some(rng)})

    def by_steps(self, rng: Random) -> Edit:
        """Some knobs, each moved a little."""
        edit = {name: self._near(rng, name, self.now[name]) for name in self._some(rng)}
        return self._changed(edit)

    def towards(self, rng: Random, elite: Values) -> Edit:
        """Some of the knobs in which another config differs, set as they are there, and perhaps a
        small step besides."""
        there = self._changed({name: elite[name] for name in self.names})
        if not there:
            return {}
        names = rng.sample(list(there), rng.randint(1, min(self.most, len(there))))
        edit = {name: there[name] for name in names}
        if len(edit) < self.most and rng.random() < 0.5:
            name = rng.choice(self.names)
            edit[name] = self._near(rng, name, edit.get(name, self.now[name]))
        return self._changed(edit)

    def varied(self, rng: Random, edit: Edit) -> Edit:
        """An edit with one of its knobs moved on a little, or another knob turned in its place."""
        name = rng.choice(list(edit))
        rest = {other: value for other, value in edit.items() if other != name}
        if rng.random() < 0.5:
            return self._changed({**rest, name: self._near(rng, name, edit[name])})
        other = rng.choice([one for one in self.names if one not in rest])
        return self._changed({**rest, other: self._anywhere(rng, other)})

    def _some(self, rng: Random) -> list[str]:
        return rng.sample(self.names, rng.randint(1, self.most))

    def _changed(self, values: Values) -> Edit:
        return {name: value for name, value in values.items() if value != self.now[name]}

    def _anywhere(self, rng: Random, name: str) -> Scalar:
        return anywhere(self.domains[name], rng)

    def _near(self, rng: Random, name: str, value: Scalar) -> Scalar:
        return near(self.domains[name], value, rng.choice(REACHES), rng)
