"""Represent a menu's knobs as coordinates, so that similar configs are close, and draw nearby
values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import OrderedChoices
from autoresearch.domains.ranges import Range, WholeRange
from autoresearch.values import Scalar

Floats: TypeAlias = NDArray[np.float64]
LAST = 1 - 2**-53
"""Largest share below 1."""


def is_ordered(domain: Domain) -> bool:
    """Return whether values have distances."""
    return isinstance(domain, Range | OrderedChoices)


def shares(domain: Domain, values: Sequence[Scalar]) -> Floats:
    """Return ``[N]``: each value's position in an ordered domain, from 0 to 1 on its scale; for a
    ladder, the midpoint of one of as many equal parts as it has choices."""
    if isinstance(domain, OrderedChoices):
        places: dict[Scalar, int] = {one: n for n, one in enumerate(sorted(domain.choices))}
        return np.array([(places[value] + 0.5) / len(places) for value in values])
    assert isinstance(domain, Range)
    number_N, low, high = np.array(values, dtype=np.float64), float(domain.low), float(domain.high)
    if domain.scale == "log":
        number_N, low, high = np.log(number_N), math.log(low), math.log(high)
    return np.clip((number_N - low) / (high - low), 0, 1) if high > low else 0 * number_N


def anywhere(domain: Domain, rng: Random) -> Scalar:
    """Draw a value uniformly on the domain's scale, rounded as for a proposal."""
    return domain.normal(domain.rounded(domain.draw(rng)))


def near(domain: Domain, value: Scalar, reach: float, rng: Random) -> Scalar:
    """Draw a value around another, possibly the same; from the whole domain if it has no order.

    :param reach: standard deviation, as a share of the domain on its scale; at least one value of a
        countable domain. Values outside are mirrored into it.
    """
    if not is_ordered(domain):
        return anywhere(domain, rng)
    grain = 0.0  # the share of the domain that one value takes up, if it is countable
    if isinstance(domain, OrderedChoices):
        grain = 1 / len(domain.choices)
    elif isinstance(domain, WholeRange) and domain.scale == "linear":
        grain = 1 / ((domain.high - domain.low) // domain.step + 1)
    moved = (float(shares(domain, [value])[0]) + rng.gauss(0, max(reach, grain))) % 2
    place = min(moved if moved < 1 else 2 - moved, LAST)
    if isinstance(domain, OrderedChoices):
        return domain.normal(sorted(domain.choices)[int(place * len(domain.choices))])
    return domain.normal(domain.rounded(domain.at(place)))


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
