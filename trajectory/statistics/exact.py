"""Sum floats exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable


class ExactSum:
    """A sum of floats that is rounded only when it is read.

    Adding a number and later subtracting it leaves no trace, and the order of additions does not
    matter. So a sum updated over a hundred thousand changes equals one computed from scratch.
    Source: Shewchuk, Adaptive Precision Floating-Point Arithmetic (1997), as in :func:`math.fsum`.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[float] = ()) -> None:
        self._parts = list(parts)

    def add(self, term: float) -> None:
        """Add a finite number."""
        kept = 0
        for part in self._parts:
            larger, smaller = (term, part) if abs(term) >= abs(part) else (part, term)
            term = larger + smaller
            rest = smaller - (term - larger)
            if rest:
                self._parts[kept] = rest
                kept += 1
        self._parts[kept:] = [term] if term else []

    @property
    def value(self) -> float:
        """The sum, correctly rounded."""
        return math.fsum(self._parts)

    @property
    def parts(self) -> tuple[float, ...]:
        """Floats whose exact sum this is; they restore the state."""
        return tuple(self._parts)
