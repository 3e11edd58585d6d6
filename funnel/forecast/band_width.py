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


def stalled_bpb(forecast: Forecast) -> float:
    """Bits per byte of a run that stopped learning where the forecast begins."""
    return forecast.points[0].middle_bpb


def tells(place: ForecastPoint | Window, forecast: Forecast) -> bool:
    """Whether the band shuts such a run out here."""
    return (1 + TOLERANCE) * place.high_bpb < stalled_bpb(forecast)


def telling_point(forecast: Forecast) -> ForecastPoint | None:
    """The first at which it does; the high edge never rises, so it does from there on. None: the
    band is too wide to its end."""
    return next((point for point in forecast.points if tells(point, forecast)), None)
