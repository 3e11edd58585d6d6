"""Where in its domain a value lies, and values nearby."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Ladder
from autoresearch.domains.ranges import Range, WholeRange
from autoresearch.values import Scalar

Floats: TypeAlias = NDArray[np.float64]
_LAST = 1 - 2**-53
"""The largest share below 1."""


def is_ordered(domain: Domain) -> bool:
    """Whether some values are nearer to one than others."""
    return isinstance(domain, Range | Ladder)


def share(domain: Domain, value: Scalar) -> float:
    """The share of an ordered domain, from 0 to 1 on its scale, that a value lies at."""
    if isinstance(domain, Ladder):
        return _shares_of(domain)[value]
    assert isinstance(domain, Range)
    number, low, high = float(value), float(domain.low), float(domain.high)
    if domain.scale == "log":
        number, low, high = math.log(number), math.log(low), math.log(high)
    return min(max((number - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def shares(domain: Domain, values: Sequence[Scalar]) -> Floats:
    """``[N]``: :func:`share` of each of them, a few hundred in the time of some ten."""
    if isinstance(domain, Ladder):
        of = _shares_of(domain)
        return np.array([of[value] for value in values])
    assert isinstance(domain, Range)
    number_N, low, high = np.array(values, dtype=np.float64), float(domain.low), float(domain.high)
    if domain.scale == "log":
        number_N, low, high = np.log(number_N), math.log(low), math.log(high)
    return np.clip((number_N - low) / (high - low), 0, 1) if high > low else 0 * number_N


def _shares_of(domain: Ladder) -> dict[Scalar, float]:
    """The middles of as many equal parts."""
    count = len(domain.choices)
    return {one: (place + 0.5) / count for place, one in enumerate(sorted(domain.choices))}


def anywhere(domain: Domain, rng: Random) -> Scalar:
    """A value drawn uniformly on the domain's scale, as it is proposed."""
    return domain.normal(domain.rounded(domain.draw(rng)))


def near(domain: Domain, value: Scalar, reach: float, rng: Random) -> Scalar:
    """A value drawn about another, perhaps that one again; from all where there is no order.

    :param reach: the standard deviation, as a share of the domain on its scale; where the domain
        counts its values, one of them at least. What falls outside is mirrored in.
    """
    if not is_ordered(domain):
        return anywhere(domain, rng)
    moved = (share(domain, value) + rng.gauss(0, max(reach, _grain(domain)))) % 2
    return domain.normal(domain.rounded(_at(domain, min(moved if moved < 1 else 2 - moved, _LAST))))


def _at(domain: Domain, place: float) -> Scalar:
    if isinstance(domain, Ladder):
        return sorted(domain.choices)[int(place * len(domain.choices))]
    return domain.at(place)


def _grain(domain: Domain) -> float:
    """The share of the domain that one value takes up; 0 where they are not counted."""
    if isinstance(domain, Ladder):
        return 1 / len(domain.choices)
    if isinstance(domain, WholeRange) and domain.scale == "linear":
        return 1 / ((domain.high - domain.low) // domain.step + 1)
    return 0.0
