"""Draw the forecast: the proxy's curves, the law fitted to them, and the band beyond them."""

import math
from collections.abc import Sequence

import numpy as np

from funnel.forecast.band import Forecast
from funnel.target.shape import size_text
from trainer.spec import CurvePoint
from trajectory.report.canvas import BASE, DISCARD, FAILED, KEEP, Picture, sheet


def forecast_picture(forecast: Forecast, curves: Sequence[Sequence[CurvePoint]]) -> Picture:
    """Draw the forecast, with the curves of the proxy's long runs before it."""
    figure = sheet(3.9)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(
        lambda tokens, _: size_text(round(tokens)) if tokens >= 1 else ""
    )
    axes.xaxis.set_minor_formatter(lambda _tokens, _: "")
    to_bpb = 1 / (math.log(2) * (forecast.proxy_text.bytes_per_token or 1.0))
    for number, curve in enumerate(curves):
        axes.plot(
            [point.tokens or 0 for point in curve],
            [point.loss * to_bpb for point in curve],
            color=DISCARD.light,
            linewidth=0.5,
            label="proxy's long runs" if number == 0 else None,
        )
    if (fall := forecast.fall) is not None:
        seen = np.geomspace(fall.from_tokens, fall.to_tokens, 100)
        law = fall.floor + fall.amplitude * (seen / fall.scale) ** -fall.exponent
        label = "law, where it was fitted"
        axes.plot(seen, law * to_bpb, color=KEEP.light, linewidth=1.8, label=label)
    points = forecast.points
    tokens = [point.tokens for point in points]
    low, high = [point.low_bpb for point in points], [point.high_bpb for point in points]
    axes.fill_between(
        tokens, low, high, color=BASE.light, alpha=0.25, linewidth=0, label="forecast"
    )
    middle = [point.middle_bpb for point in points]
    axes.plot(tokens, middle, color=BASE.light, linestyle="--", linewidth=1, label="its middle")
    if tokens[0] <= forecast.first_day_tokens <= tokens[-1]:
        axes.axvline(forecast.first_day_tokens, color=FAILED.light, linestyle=":", label="24 h")
    axes.set_xlabel("training tokens")
    axes.set_ylabel("training loss, bits per byte")
    axes.legend(loc="best")
    return Picture("forecast", "The forecast of the large run's training loss.", figure)
