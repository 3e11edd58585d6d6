"""Allocate iteration numbers, reusing gaps."""

from __future__ import annotations

from collections.abc import Set
from heapq import heapify, heappop


class Numbers:
    """Numbers with neither a row nor an in-flight file. An iteration that was in flight and cannot
    be resumed leaves a gap, which is filled first."""

    def __init__(self, taken: Set[int]) -> None:
        self._last = max(taken, default=0)
        self._gaps = [number for number in range(1, self._last) if number not in taken]
        heapify(self._gaps)

    def next(self) -> int:
        """Take the lowest free number."""
        if self._gaps:
            return heappop(self._gaps)
        self._last += 1
        return self._last
