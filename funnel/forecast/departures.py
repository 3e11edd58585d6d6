"""Find where a run's loss leaves its forecast.

The log's points within the forecast are divided into at most 60 windows with equal numbers of
points, at least five each. A window departs if its median is more than 5 % above the high edge or
more than 5 % below the low edge. A single window may be a spike. Three successive windows that
depart to the same side are a lasting departure: the proxy no longer predicts this run. So are three
successive losses that are not finite.

A loss below the band is a departure too, since the run then measures something other than planned.
Far beyond the proxy's tokens the band is wide, so a rise within it is reported as well. A rise is
three successive windows that are more than 10 % above the lowest mean of three earlier ones.

A band confirms a run only where it excludes some faulty run. The reference fault is a run that
stopped learning where the forecast begins: its loss stays at the middle of the first point. The
band excludes it once the high edge, plus the tolerance, is below that level. Before that point, and
in a band that never falls so far, such a run does not depart either. The band need not distinguish
the best recipe from the second best: no band from small proxies is that narrow.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Literal, TypeAlias

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from funnel.forecast.band import Forecast, ForecastPoint
from funnel.forecast.cloud_log import CloudPoint
from funnel.forecast.ladder.basis import EARLY

TOLERANCE = 0.05
"""Relative distance beyond an edge at which a window departs."""
RISE = 0.10
"""Relative distance above the run's own lowest level at which a window counts as rising."""
WINDOWS = 60
LEAST_POINTS = 5
"""Fewest points in a window."""
LASTING = 3
"""Successive windows, or losses, of a lasting departure."""


class Window(Frozen):
    """Successive points, compared with the band."""

    tokens: PositiveInt
    """Tokens of the middle point."""
    step: NonNegativeInt
    points: PositiveInt
    bpb: Finite
    """Median of the points."""
    low_bpb: Finite
    middle_bpb: Finite
    high_bpb: Finite
    beyond: Finite
    """Distance outside the band, relative to the edge; 0 inside, negative below."""

    @property
    def side(self) -> int:
        """1 if the window departs upward, -1 if downward, else 0."""
        return 0 if abs(self.beyond) <= TOLERANCE else int(math.copysign(1, self.beyond))


Side: TypeAlias = Literal["above", "below", "rising", "stopped", "not finite"]


class Departure(Frozen):
    """A lasting departure of the run from the band."""

    side: Side
    step: NonNegativeInt
    tokens: PositiveInt
    """Tokens of the first window or point that departs; ``step`` is its step."""
    worst: Finite | None
    """Largest relative distance from the edge, or from the lowest level for ``rising``; None if the
    loss was not finite."""
    back_at_step: NonNegativeInt | None = None
    """Step at which the departure ended; None if it did not end or was not tracked."""
    seen_at_step: NonNegativeInt | None = None
    """Step at which the departure could be detected, for a forecast from a ladder."""


def earliest_departure(
    windows: Sequence[Window], points: Sequence[CloudPoint], forecast: Forecast
) -> Departure | None:
    """Return the earliest departure of any kind; None if there is none.

    :param points: the whole log, to find losses that are not finite.
    """
    found = [_lasting(windows), _rising(windows), lost(points, forecast)]
    departures = [departure for departure in found if departure is not None]
    return min(departures, key=lambda departure: departure.tokens, default=None)


def make_windows(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> list[Window]:
    """Divide the points into windows of nearly equal size, each of at least LEAST_POINTS points.

    :param factor: factor from the log's unit to bits per byte.
    """
    count = min(WINDOWS, len(points) // LEAST_POINTS)
    if count == 0:
        return []
    parts = np.array_split(np.arange(len(points)), count)
    return [window_of([points[i] for i in part], forecast, factor) for part in parts]


def window_of(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> Window:
    """Return one window of these points."""
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
    """Return the first departure of LASTING successive windows to the same side."""
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
    """Return the first rise: LASTING successive windows above the lowest level before them."""
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
    """Return the first departure of LASTING successive losses that are not finite.

    The losses need not lie within the forecast.
    """
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


def stalled_bpb(forecast: Forecast) -> float:
    """Return the bits per byte of a run that stopped learning where the forecast begins."""
    return forecast.points[0].middle_bpb


def tells(place: ForecastPoint | Window, forecast: Forecast) -> bool:
    """Return whether the band excludes a run that stopped learning where the forecast begins."""
    return (1 + TOLERANCE) * place.high_bpb < stalled_bpb(forecast)


def telling_point(forecast: Forecast) -> ForecastPoint | None:
    """Return the first point at which the band excludes such a run; None if it never does.

    The high edge never rises, so the band excludes the run from this point on. A forecast from a
    ladder confirms once the last of the faults that must be caught early is caught. It never
    confirms if the forecast is worthless.
    """
    basis, points = forecast.ladder, forecast.points
    if basis is None:
        return next((point for point in points if tells(point, forecast)), None)
    if not basis.is_usable:
        return None
    early = [
        catch.by_tokens or 0
        for catch in basis.caught
        if catch.is_needed and catch.from_tokens <= EARLY * basis.total_tokens
    ]
    return next((point for point in points if point.tokens >= max(early)), points[-1])
