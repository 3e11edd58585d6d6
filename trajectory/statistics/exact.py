"""Sums that forget nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable


class ExactSum:
    """A sum of floats that is rounded only when it is read.

    Adding and later taking back a number leaves no trace, and the order of the additions does not
    show, so a sum kept up to date over a hundred thousand changes equals the one computed afresh.
    Shewchuk, Adaptive Precision Floating-Point Arithmetic (1997), as in :func:`math.fsum`.
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
        """Floats that add up to exactly the sum; the state to restore it from."""
        return tuple(self._parts)
