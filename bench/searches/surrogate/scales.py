"""Where in its domain a value lies, and what lies near it."""

from __future__ import annotations

import math
from random import Random

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import Range, WholeRange
from autoresearch.values import Scalar

_LAST = 1 - 2**-53
"""The largest share below 1."""


def is_ordered(domain: Domain) -> bool:
    """Whether some values are nearer to one than others."""
    return isinstance(domain, Range | Ladder)


def share(domain: Domain, value: Scalar) -> float:
    """The share of an ordered domain, from 0 to 1 on its scale, that a value lies at."""
    if isinstance(domain, Range):
        return _position(domain, float(value))
    assert isinstance(domain, Choices)
    return (sorted(domain.choices).index(value) + 0.5) / len(domain.choices)


def near(domain: Domain, value: Scalar, reach: float, rng: Random) -> Scalar:
    """A value drawn about another, perhaps that one again; from all where there is no order.

    :param reach: the standard deviation, as a share of the domain on its scale; where the domain
        counts its values, one of them at least. What falls outside is mirrored in.
    """
    if not is_ordered(domain):
        return domain.draw(rng)
    moved = (share(domain, value) + rng.gauss(0, max(reach, _grain(domain)))) % 2
    place = min(moved if moved < 1 else 2 - moved, _LAST)
    if isinstance(domain, Ladder):
        return sorted(domain.choices)[int(place * len(domain.choices))]
    return domain.at(place)


def _position(domain: Range, number: float) -> float:
    if domain.scale == "log":
        span, above = math.log(domain.high / domain.low), math.log(number / domain.low)
    else:
        span, above = domain.high - domain.low, number - domain.low
    return min(max(above / span, 0.0), 1.0) if span else 0.0


def _grain(domain: Domain) -> float:
    """The share of the domain that one value takes up; 0 where they are not counted."""
    if isinstance(domain, Ladder):
        return 1 / len(domain.choices)
    if isinstance(domain, WholeRange) and domain.scale == "linear":
        return 1 / ((domain.high - domain.low) // domain.step + 1)
    return 0.0
