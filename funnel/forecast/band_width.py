"""Decide whether a forecast's band is narrow enough to confirm a run within it.

A band confirms a run only where it excludes some faulty run. The reference fault is a run that
stopped learning where the forecast begins: its loss stays at the middle of the first point. The
band excludes it once the high edge, plus the tolerance, is below that level. Before that point, and
in a band that never falls so far, such a run does not depart either. The band need not distinguish
the best recipe from the second best: no band from small proxies is that narrow.
"""

from __future__ import annotations

from funnel.forecast.band import Forecast, ForecastPoint
from funnel.forecast.departures import TOLERANCE, Window
from funnel.forecast.ladder.basis import LadderBasis
from funnel.forecast.ladder.faults import EARLY


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
    if forecast.ladder is not None:
        return _by_ladder(forecast, forecast.ladder)
    return next((point for point in forecast.points if tells(point, forecast)), None)


def _by_ladder(forecast: Forecast, basis: LadderBasis) -> ForecastPoint | None:
    if not basis.is_usable:
        return None
    early = [
        catch.by_tokens or 0
        for catch in basis.caught
        if catch.is_needed and catch.from_tokens <= EARLY * basis.total_tokens
    ]
    points = forecast.points
    return next((point for point in points if point.tokens >= max(early)), points[-1])
