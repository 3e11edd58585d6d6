"""Small steps along a knob's domain."""

from __future__ import annotations

from random import Random

from agent.proposers.surrogate.scales import is_ordered, share
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Ladder
from autoresearch.domains.ranges import Range, WholeRange
from autoresearch.values import Scalar

_LAST = 1 - 2**-53
"""The largest share below 1."""


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
    assert isinstance(domain, Range)
    return domain.at(place)


def _grain(domain: Domain) -> float:
    """The share of the domain that one value takes up; 0 where they are not counted."""
    if isinstance(domain, Ladder):
        return 1 / len(domain.choices)
    if isinstance(domain, WholeRange) and domain.scale == "linear":
        return 1 / ((domain.high - domain.low) // domain.step + 1)
    return 0.0
