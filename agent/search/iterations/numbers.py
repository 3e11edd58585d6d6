"""Which number the next iteration has: each once at rest, and none lost."""

from __future__ import annotations

from collections.abc import Set
from heapq import heapify, heappop


class Numbers:
    """Numbers of iterations that have neither a row nor a file of one in flight. What was in flight
    and cannot be gone on with leaves a gap, which is filled before anything is counted on."""

    def __init__(self, taken: Set[int]) -> None:
        self._last = max(taken, default=0)
        self._gaps = [number for number in range(1, self._last) if number not in taken]
        heapify(self._gaps)

    def next(self) -> int:
        """The lowest that is free; it is taken by that."""
        if self._gaps:
            return heappop(self._gaps)
        self._last += 1
        return self._last
