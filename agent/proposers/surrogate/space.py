"""Represent a menu's knobs as coordinates, so that similar configs are close."""

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
"""Value of every knob."""


@dataclass(frozen=True, slots=True)
class Space:
    """K knobs in P coordinates.

    An ordered knob has one coordinate, its share of the domain. An unordered one has one per
    choice, so that two different choices are 1 apart, like the two ends of a range.
    """

    domains: Mapping[str, Domain]
    first: Mapping[str, int]
    """First coordinate of each knob."""
    knobs: NDArray[np.intp]
    """[P]: index of the knob that a coordinate belongs to."""

    @classmethod
    def of(cls, domains: Mapping[str, Domain]) -> Self:
        widths = [1 if is_ordered(one) else len(one.ends) for one in domains.values()]
        firsts = np.cumsum([0, *widths])[:-1].tolist()
        knob_P = np.repeat(np.arange(len(widths)), widths)
        return cls(domains, dict(zip(domains, firsts, strict=True)), knob_P)

    def contains(self, values: Values) -> bool:
        """Return whether every knob's value is in its domain."""
        return all(domain.contains(values[name]) for name, domain in self.domains.items())

    def points(self, configs: Sequence[Values]) -> Floats:
        """Return ``[N, P]``: the coordinates of configs that are in the space."""
        points_NP = np.zeros((len(configs), len(self.knobs)))
        everywhere = list(range(len(configs)))
        for name in self.domains:
            self._place(points_NP, everywhere, name, [values[name] for values in configs])
        return points_NP

    def edited(self, origin: Values, edits: Sequence[Values]) -> Floats:
        """Return ``[N, P]``: the coordinates of one config with some knobs changed."""
        points_NP = np.repeat(self.points([origin]), len(edits), axis=0)
        for name in dict.fromkeys(name for edit in edits for name in edit if name in self.domains):
            rows = [row for row, edit in enumerate(edits) if name in edit]
            self._place(points_NP, rows, name, [edits[row][name] for row in rows])
        return points_NP

    def _place(
        self, points_NP: Floats, rows: Sequence[int], name: str, values: Sequence[Scalar]
    ) -> None:
        """Fill coordinates knob by knob, so that a few hundred configs take a dozen numpy steps."""
        domain, first = self.domains[name], self.first[name]
        if is_ordered(domain):
            points_NP[rows, first] = shares(domain, values)
            return
        points_NP[rows, first : first + len(domain.ends)] = 0
        known = {value: first + place for place, value in enumerate(domain.ends)}
        for row, value in zip(rows, values, strict=True):
            if value in known:  # code that is not tried yet resembles no other
                points_NP[row, known[value]] = math.sqrt(0.5)
