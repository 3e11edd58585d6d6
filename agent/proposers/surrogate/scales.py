"""Where in its domain a value lies."""

from __future__ import annotations

import math

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import Range
from autoresearch.values import Scalar


def is_ordered(domain: Domain) -> bool:
    """Whether some values are nearer to one than others."""
    return isinstance(domain, Range | Ladder)


def share(domain: Domain, value: Scalar) -> float:
    """The share of an ordered domain, from 0 to 1 on its scale, that a value lies at."""
    if isinstance(domain, Range):
        return _position(domain, float(value))
    assert isinstance(domain, Choices)
    return (sorted(domain.choices).index(value) + 0.5) / len(domain.choices)


def _position(domain: Range, number: float) -> float:
    if domain.scale == "log":
        span, above = math.log(domain.high / domain.low), math.log(number / domain.low)
    else:
        span, above = domain.high - domain.low, number - domain.low
    return min(max(above / span, 0.0), 1.0) if span else 0.0
