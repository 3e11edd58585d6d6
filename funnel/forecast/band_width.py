"""Whether a forecast's band is narrow enough for a run within it to say anything.

Being within confirms something only where another run would not be. The least that a band must shut
out is a run that stopped learning where the forecast begins, and stays at the middle of the band
there. It does so from where its high edge, with the tolerance on top, has fallen below that level.
Before that, and anywhere in a band that never falls so far, such a run is no departure either. That
a band tell the best recipe from the second best is not asked: none from small proxies is so narrow.
"""

from __future__ import annotations

from funnel.forecast.band import Forecast, ForecastPoint
from funnel.forecast.departures import TOLERANCE, Window
from funnel.forecast.ladder.basis import LadderBasis
from funnel.forecast.ladder.faults import EARLY


def stalled_bpb(forecast: Forecast) -> float:
    """Bits per byte of a run that stopped learning where the forecast begins."""
    return forecast.points[0].middle_bpb


def tells(place: ForecastPoint | Window, forecast: Forecast) -> bool:
    """Whether the band shuts such a run out here."""
    return (1 + TOLERANCE) * place.high_bpb < stalled_bpb(forecast)


def telling_point(forecast: Forecast) -> ForecastPoint | None:
    """The first at which it does; the high edge never rises, so it does from there on. None: the
    band is too wide to its end. A ladder's forecast tells from where the last of what must be
    caught early is, and nowhere where it is worthless."""
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
