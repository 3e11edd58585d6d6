"""Find where a run's loss leaves its forecast.

The log's points within the forecast are divided into windows of equal numbers of points, at most
60, each of five or more. The median of a window is compared with the band: it departs if it is more
than 5 % above the high edge or 5 % below the low one. One window may be a spike; three successive
windows that depart to the same side are a lasting departure, and the proxy no longer predicts this
run. As many successive losses that are not finite mean the same. A loss below the band is a
departure too: it measures something else than was planned. Far beyond the proxy's tokens the band
is wide, so a rising loss within it is reported as well: three successive windows that are more than
10 % above the lowest mean of three before them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Literal, TypeAlias

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from funnel.forecast.band import Forecast
from funnel.forecast.cloud_log import CloudPoint

TOLERANCE = 0.05
"""Beyond an edge, relative."""
RISE = 0.10
"""Above the run's own lowest level, relative."""
WINDOWS = 60
LEAST_POINTS = 5
"""The fewest points of a window."""
LASTING = 3
"""Windows in a row."""


class Window(Frozen):
    """Neighbouring points, and how they lie to the band."""

    tokens: PositiveInt
    """The median point's."""
    step: NonNegativeInt
    points: PositiveInt
    bpb: Finite
    """Median."""
    low_bpb: Finite
    middle_bpb: Finite
    high_bpb: Finite
    beyond: Finite
    """How far outside the band, relative to the edge; 0 inside, negative below."""

    @property
    def side(self) -> int:
        """1 departs upwards, -1 downwards, 0 does not."""
        return 0 if abs(self.beyond) <= TOLERANCE else int(math.copysign(1, self.beyond))


Side: TypeAlias = Literal["above", "below", "rising", "stopped", "not finite"]


class Departure(Frozen):
    """A lasting departure of the run from the band."""

    side: Side
    step: NonNegativeInt
    tokens: PositiveInt
    """The tokens, as the step, of the first window, or point, that departs."""
    worst: Finite | None
    """Largest distance from the edge (rising: from the lowest level), relative; None where the loss
    was not finite."""
    back_at_step: NonNegativeInt | None = None
    """Step at which it returned, if it did."""
    seen_at_step: NonNegativeInt | None = None
    """Step at which it could be detected, for a forecast from a ladder."""


def earliest_departure(
    windows: Sequence[Window], points: Sequence[CloudPoint], forecast: Forecast
) -> Departure | None:
    """The first of any kind.

    :param points: the whole log's, for losses that are not finite.
    """
    found = [_lasting(windows), _rising(windows), lost(points, forecast)]
    departures = [departure for departure in found if departure is not None]
    return min(departures, key=lambda departure: departure.tokens, default=None)


def make_windows(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> list[Window]:
    """None of fewer than LEAST_POINTS; what does not fill the last one is added to it."""
    count = min(WINDOWS, len(points) // LEAST_POINTS)
    if count == 0:
        return []
    parts = np.array_split(np.arange(len(points)), count)
    return [window_of([points[i] for i in part], forecast, factor) for part in parts]


def window_of(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> Window:
    """Neighbouring points as one."""
    middle = points[len(points) // 2]
    bpb = median(point.loss for point in points) * factor
    edges = forecast.at(np.array([middle.tokens], dtype=np.float64))
    low, mid, high = (float(edge[0]) for edge in edges)
    beyond = bpb / high - 1 if bpb > high else bpb / low - 1 if bpb < low else 0.0
    return Window(
        tokens=middle.tokens,
        step=_step(middle, forecast),
        points=len(points),
        bpb=bpb,
        low_bpb=low,
        middle_bpb=mid,
        high_bpb=high,
        beyond=beyond,
    )


def _step(point: CloudPoint, forecast: Forecast) -> int:
    return round(point.tokens / forecast.tokens_per_step) if point.step is None else point.step


def _lasting(windows: Sequence[Window]) -> Departure | None:
    """The first LASTING windows in a row that depart to one side."""
    place = 0
    for side, group in groupby(windows, key=lambda window: window.side):
        run = list(group)
        place += len(run)
        if side != 0 and len(run) >= LASTING:
            return Departure(
                side="above" if side > 0 else "below",
                step=run[0].step,
                tokens=run[0].tokens,
                worst=max((window.beyond for window in run), key=abs),
                back_at_step=windows[place].step if place < len(windows) else None,
            )
    return None


def _rising(windows: Sequence[Window]) -> Departure | None:
    """The first LASTING windows in a row above the lowest level before them."""
    for place in range(LASTING, len(windows) - LASTING + 1):
        lowest = min(
            fmean(window.bpb for window in windows[first : first + LASTING])
            for first in range(place - LASTING + 1)
        )
        highest = (1 + RISE) * lowest
        if all(window.bpb > highest for window in windows[place : place + LASTING]):
            rest = windows[place:]
            return Departure(
                side="rising",
                step=rest[0].step,
                tokens=rest[0].tokens,
                worst=max(window.bpb for window in rest) / lowest - 1,
                back_at_step=next((w.step for w in rest if w.bpb <= highest), None),
            )
    return None


def lost(points: Sequence[CloudPoint], forecast: Forecast) -> Departure | None:
    """The first LASTING losses in a row that are not finite, wherever they are."""
    for finite, group in groupby(points, key=lambda point: math.isfinite(point.loss)):
        run = list(group)
        if not finite and len(run) >= LASTING:
            return Departure(
                side="not finite",
                step=_step(run[0], forecast),
                tokens=run[0].tokens,
                worst=None,
            )
    return None
