"""Draw the forecast: the proxy's curves, the law fitted to them, and the band beyond them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from funnel.forecast.band import Forecast
from funnel.stress.plot import draw_pictures
from funnel.target.shape import size_text
from trainer.spec import CurvePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (6.5, 3.6)
_CURVE, _LAW, _BAND = "#8C8C8C", "#0072B2", "#56B4E9"


def draw_forecast(forecast: Forecast, curves: Sequence[Sequence[CurvePoint]]) -> dict[str, bytes]:
    """Return the picture in each format."""
    return draw_pictures(lambda: _figure(forecast, curves))


def _figure(forecast: Forecast, curves: Sequence[Sequence[CurvePoint]]) -> Figure:
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415 (slow to load)

    figure = Sheet(figsize=SIZE_IN, layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(
        lambda tokens, _: size_text(round(tokens)) if tokens >= 1 else ""
    )
    axes.xaxis.set_minor_formatter(lambda _tokens, _: "")
    axes.grid(visible=True, color="#E6E6E6", linewidth=0.6)
    _draw_proxy(axes, forecast, curves)
    _draw_band(axes, forecast)
    axes.set_xlabel("training tokens")
    axes.set_ylabel("training loss, bits per byte")
    axes.legend(loc="best", fontsize=7)
    return figure


def _draw_proxy(axes: Axes, forecast: Forecast, curves: Sequence[Sequence[CurvePoint]]) -> None:
    fall = forecast.fall
    to_bpb = 1 / (math.log(2) * (forecast.proxy_text.bytes_per_token or 1.0))
    for number, curve in enumerate(curves):
        axes.plot(
            [point.tokens or 0 for point in curve],
            [point.loss * to_bpb for point in curve],
            color=_CURVE,
            linewidth=0.5,
            alpha=0.6,
            label="proxy's long runs" if number == 0 else None,
        )
    if fall is None:
        return
    seen = np.geomspace(fall.from_tokens, fall.to_tokens, 100)
    law = fall.floor + fall.amplitude * (seen / fall.scale) ** -fall.exponent
    axes.plot(seen, law * to_bpb, color=_LAW, linewidth=1.8, label="law, where it was fitted")


def _draw_band(axes: Axes, forecast: Forecast) -> None:
    tokens = [point.tokens for point in forecast.points]
    low = [point.low_bpb for point in forecast.points]
    high = [point.high_bpb for point in forecast.points]
    middle = [point.middle_bpb for point in forecast.points]
    axes.fill_between(tokens, low, high, color=_BAND, alpha=0.35, linewidth=0, label="forecast")
    axes.plot(tokens, middle, color=_LAW, linestyle="--", linewidth=1, label="its middle")
    if tokens[0] <= forecast.first_day_tokens <= tokens[-1]:
        axes.axvline(
            forecast.first_day_tokens, color="#D55E00", linestyle=":", linewidth=1.2, label="24 h"
        )
