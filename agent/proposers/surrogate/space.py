"""A menu's knobs as coordinates: what is alike lies close."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.proposers.surrogate.scales import Floats, is_ordered, shares
from autoresearch.domains.base import Domain
from autoresearch.values import Scalar

Values: TypeAlias = Mapping[str, Scalar]
"""Every knob's value."""


@dataclass(frozen=True, slots=True)
class Space:
    """K knobs in P coordinates.

    A knob with an order has one coordinate, its share of the domain; one without has one for each
    choice, so that two different choices are 1 apart, as the two ends of a range are.
    """

    domains: Mapping[str, Domain]
    first: Mapping[str, int]
    """The first coordinate of each knob."""
    knobs: NDArray[np.intp]
    """[P]: the number of the knob that a coordinate belongs to."""

    @classmethod
    def of(cls, domains: Mapping[str, Domain]) -> Self:
        widths = [1 if is_ordered(one) else len(one.ends) for one in domains.values()]
        firsts = np.cumsum([0, *widths])[:-1].tolist()
        knob_P = np.repeat(np.arange(len(widths)), widths)
        return cls(domains, dict(zip(domains, firsts, strict=True)), knob_P)

    def contains(self, values: Values) -> bool:
        """Whether every knob's value is one of its domain."""
        return all(domain.contains(values[name]) for name, domain in self.domains.items())

    def points(self, configs: Sequence[Values]) -> Floats:
        """``[N, P]``: the coordinates of configs that are in the space."""
        points_NP = np.zeros((len(configs), len(self.knobs)))
        everywhere = list(range(len(configs)))
        for name in self.domains:
            self._place(points_NP, everywhere, name, [values[name] for values in configs])
        return points_NP

    def edited(self, origin: Values, edits: Sequence[Values]) -> Floats:
        """``[N, P]``: the coordinates of one config with some of its knobs turned."""
        points_NP = np.repeat(self.points([origin]), len(edits), axis=0)
        for name in dict.fromkeys(name for edit in edits for name in edit):
            rows = [row for row, edit in enumerate(edits) if name in edit]
            self._place(points_NP, rows, name, [edits[row][name] for row in rows])
        return points_NP

    def _place(
        self, points_NP: Floats, rows: Sequence[int], name: str, values: Sequence[Scalar]
    ) -> None:
        """Knob by knob: a few hundred configs of a dozen knobs are a dozen steps of numpy's."""
        domain, first = self.domains[name], self.first[name]
        if is_ordered(domain):
            points_NP[rows, first] = shares(domain, values)
            return
        chosen = [first + domain.ends.index(value) for value in values]
        points_NP[rows, first : first + len(domain.ends)] = 0
        points_NP[rows, chosen] = math.sqrt(0.5)
