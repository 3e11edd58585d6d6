"""Read a learning curve from a file that a trial writes, and keep its valid points.

All bounds on a trial's output are applied here, for every reader: line length, step order and
number of points. Invalid lines are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from trainer.spec.result import CurvePoint

MAX_LINE_BYTES = 1024
"""A point has about 120 bytes."""
_MIN_LINE_BYTES = 34
"""Fewer bytes cannot hold the field names, so a flood of blank lines costs nothing."""
MAX_POINTS = 20_000
"""Most points kept of a curve: about 25 MB."""


class CurveLines:
    """Parses a curve.jsonl in pieces, wherever they are cut."""

    def __init__(self, max_step: int | None = None) -> None:
        """Start an empty curve.

        :param max_step: the last step of the trial's budget, if it has one; later points are
            dropped.
        """
        self._max_step = max_step
        self._unread = b""
        self._last_step = -1

    def feed(self, data: bytes) -> list[CurvePoint]:
        """Return the points completed by ``data``, in ascending steps."""
        *lines, unread = (self._unread + data).split(b"\n")
        # one byte too many, so that the line stays invalid
        self._unread = unread[: MAX_LINE_BYTES + 1]
        return [point for line in lines if (point := self._point(line)) is not None]

    def _point(self, line: bytes) -> CurvePoint | None:
        if not _MIN_LINE_BYTES <= len(line) <= MAX_LINE_BYTES:
            return None
        try:
            point = CurvePoint.model_validate_json(line)
        except ValidationError:
            return None
        if point.step <= self._last_step:
            return None
        if self._max_step is not None and point.step > self._max_step:
            return None
        self._last_step = point.step
        return point


class KeptCurve:
    """A curve of at most :data:`MAX_POINTS` points; a longer one is thinned evenly.

    The first and the last point are always kept.
    """

    def __init__(self) -> None:
        self._points: list[CurvePoint] = []
        self._every = 1
        self._seen = 0
        self._last: CurvePoint | None = None

    def add(self, points: Iterable[CurvePoint]) -> None:
        """Add points."""
        for point in points:
            if self._seen % self._every == 0:
                self._points.append(point)
            self._seen += 1
            self._last = point
            if len(self._points) >= MAX_POINTS:
                self._points = self._points[::2]
                self._every *= 2

    def points(self) -> list[CurvePoint]:
        """Return the kept points, in ascending steps."""
        if self._last is None or self._points[-1] is self._last:
            return list(self._points)
        return [*self._points, self._last]
