"""A learning curve as it comes out of a file that a trial writes: lines in, sound points out.

What the trial wrote is bounded here for everybody who reads it: a line's length, the steps' order,
how many points are kept. What is no point is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from trainer.spec.result import CurvePoint

MAX_LINE_BYTES = 1024
"""A point has about 120."""
_MIN_LINE_BYTES = 34
"""The names alone have more, so that a flood of blank lines costs nothing."""
MAX_POINTS = 20_000
"""The most points that are kept of a curve: about 25 MB of them."""


class CurveLines:
    """Takes in a curve.jsonl piece by piece, wherever the pieces are cut."""

    def __init__(self, max_step: int | None = None) -> None:
        """
        :param max_step: of the trial's budget, where it has one; no later step is a point.
        """
        self._max_step = max_step
        self._unread = b""
        self._last_step = -1

    def feed(self, data: bytes) -> list[CurvePoint]:
        """The points completed by ``data``, in steps ascending."""
        *lines, unread = (self._unread + data).split(b"\n")
        self._unread = unread[: MAX_LINE_BYTES + 1]  # one too many: it stays no point
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

    The first and the last point are always among them.
    """

    def __init__(self) -> None:
        self._points: list[CurvePoint] = []
        self._every = 1
        self._seen = 0
        self._last: CurvePoint | None = None

    def add(self, points: Iterable[CurvePoint]) -> None:
        """Take in more of it."""
        for point in points:
            if self._seen % self._every == 0:
                self._points.append(point)
            self._seen += 1
            self._last = point
            if len(self._points) >= MAX_POINTS:
                self._points = self._points[::2]
                self._every *= 2

    def points(self) -> list[CurvePoint]:
        """What is kept, in steps ascending."""
        if self._last is None or self._points[-1] is self._last:
            return list(self._points)
        return [*self._points, self._last]
