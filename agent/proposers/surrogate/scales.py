"""Convert values to positions in their domains, and draw nearby values."""

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
LAST = 1 - 2**-53
"""Largest share below 1."""


def is_ordered(domain: Domain) -> bool:
    """Return whether values have distances."""
    return isinstance(domain, Range | Ladder)


def share(domain: Domain, value: Scalar) -> float:
    """Return a value's position in an ordered domain, from 0 to 1 on its scale."""
    if isinstance(domain, Ladder):
        return _shares_of(domain)[value]
    assert isinstance(domain, Range)
    number, low, high = float(value), float(domain.low), float(domain.high)
    if domain.scale == "log":
        number, low, high = math.log(number), math.log(low), math.log(high)
    return min(max((number - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def shares(domain: Domain, values: Sequence[Scalar]) -> Floats:
    """Return ``[N]``: :func:`share` of each value, vectorized."""
    if isinstance(domain, Ladder):
        of = _shares_of(domain)
        return np.array([of[value] for value in values])
    assert isinstance(domain, Range)
    number_N, low, high = np.array(values, dtype=np.float64), float(domain.low), float(domain.high)
    if domain.scale == "log":
        number_N, low, high = np.log(number_N), math.log(low), math.log(high)
    return np.clip((number_N - low) / (high - low), 0, 1) if high > low else 0 * number_N


def _shares_of(domain: Ladder) -> dict[Scalar, float]:
    """Return the midpoints of equal parts, one per choice."""
    count = len(domain.choices)
    return {one: (place + 0.5) / count for place, one in enumerate(sorted(domain.choices))}


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
    moved = (share(domain, value) + rng.gauss(0, max(reach, _grain(domain)))) % 2
    return domain.normal(domain.rounded(_at(domain, min(moved if moved < 1 else 2 - moved, LAST))))


def _at(domain: Domain, place: float) -> Scalar:
    if isinstance(domain, Ladder):
        return sorted(domain.choices)[int(place * len(domain.choices))]
    return domain.at(place)


def _grain(domain: Domain) -> float:
    """Return the share of the domain that one value takes up; 0 if not countable."""
    if isinstance(domain, Ladder):
        return 1 / len(domain.choices)
    if isinstance(domain, WholeRange) and domain.scale == "linear":
        return 1 / ((domain.high - domain.low) // domain.step + 1)
    return 0.0
